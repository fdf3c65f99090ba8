package deployment_test

import (
	"fmt"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestReplacePacksTheRecord: a record of many kinds fits into etcd, as it did before it was rebuilt.
func TestReplacePacksTheRecord(t *testing.T) {
	t.Parallel()
	c := memcoord.New()
	s := deployment.New(c, "services/a/deployments/b", deployment.Config{})
	d, err := s.Create(t.Context(), "v1", 1)
	if err != nil {
		t.Fatal(err)
	}
	ns := upgradestate.Namespace{Version: "v1"}
	for i := range 2000 {
		name := fmt.Sprint("kind-of-a-large-deployment-", i)
		ns.Kinds = append(ns.Kinds, upgradestate.Kind{Kind: name, Physical: name, ID: "0123456789abcdef", Fixed: true, Fence: string(record.FenceView)})
	}
	rebuilt := upgradestate.Clone(d)
	rebuilt.Namespaces = []upgradestate.Namespace{ns}
	if err := s.Replace(t.Context(), rebuilt, d.Revision, "ann", "2026-01-01T00:00:00Z"); err != nil {
		t.Fatal(err)
	}
	kvs, _, err := c.List(t.Context(), s.Root())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range kvs {
		if len(kv.Value) > 100_000 {
			t.Errorf("%s has %d bytes", kv.Key, len(kv.Value))
		}
	}
	if now, err := s.Get(t.Context()); err != nil || len(now.Namespaces) != 1 || len(now.Namespaces[0].Kinds) != 2000 {
		t.Errorf("%d namespaces, %v", len(now.Namespaces), err)
	}
}

// TestReplaceKeepsTheHistory: a record that is rebuilt goes on with the history of the one that it
// replaces, and what has no room there is in the audit before it is dropped.
func TestReplaceKeepsTheHistory(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	s := deployment.New(memcoord.New(), "services/a/deployments/b", deployment.Config{Log: zap.New(core)})
	if _, err := s.Create(t.Context(), "v1", 1); err != nil {
		t.Fatal(err)
	}
	d, err := s.Get(t.Context())
	for i := 0; err == nil && len(d.History) < 50; i++ {
		d, err = s.Apply(t.Context(), upgradestate.Remark{What: "waive", Detail: fmt.Sprint("number ", i)})
	}
	if err != nil {
		t.Fatal(err)
	}
	logs.TakeAll()
	rebuilt, oldest, latest := upgradestate.Clone(d), d.History[0], d.History[49]
	rebuilt.History, rebuilt.HistoryDropped = []upgradestate.Entry{{What: "recover", To: "v1"}}, 0
	if err := s.Replace(t.Context(), rebuilt, d.Revision, "ann", "2026-01-01T00:00:00Z"); err != nil {
		t.Fatal(err)
	}
	if d, err = s.Get(t.Context()); err != nil || len(d.History) != 50 || d.HistoryDropped != 1 {
		t.Fatalf("%d entries, %d dropped, %v", len(d.History), d.HistoryDropped, err)
	}
	if e := d.History[49]; e.What != "recover" || e.By != "ann" || d.History[48].Detail != latest.Detail {
		t.Errorf("it ends with %+v, %+v", d.History[48], e)
	}
	lines := logs.All()
	if len(lines) != 1 || lines[0].LoggerName != access.AuditLog || fmt.Sprint(lines[0].ContextMap()["entry"]) != fmt.Sprint(oldest) {
		t.Errorf("the audit has %v, want %+v", lines, oldest)
	}
}
