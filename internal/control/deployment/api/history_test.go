package api_test

import (
	"context"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/upgradestate"
)

// TestHistorySaysWhoWasProven: the proven identity stands next to what the caller says of
// itself, and where nobody was proven there is none.
func TestHistorySaysWhoWasProven(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	ann := access.Caller{Identity: access.Identity{Name: "token:ann", Proof: "token"}, Address: "10.0.0.1:4711"}
	for _, caller := range []access.Caller{ann, {Identity: access.Loopback, Address: "127.0.0.1:1"}} {
		ctx := deployment.AskedBy(access.WithCaller(t.Context(), caller), "bob@laptop")
		if _, err := w.Store.Apply(ctx, upgradestate.Remark{What: "waive", Detail: caller.Name}); err != nil {
			t.Fatal(err)
		}
	}
	d, err := w.Store.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := len(d.History)
	if e := d.History[n-2]; e.By != "bob@laptop" || e.Identity != "token:ann" || e.Address != "10.0.0.1:4711" {
		t.Errorf("a proven caller is %+v", e)
	}
	if e := d.History[n-1]; e.By != "bob@laptop" || e.Identity != "" || e.Address != "" {
		t.Errorf("a caller on loopback is %+v", e)
	}
}

// TestHistoryIsExportedBeforeItIsDropped: what has no room any longer is in the log, and the
// status says how much that is.
func TestHistoryIsExportedBeforeItIsDropped(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	logs, seen := observer.New(zap.InfoLevel)
	store := deployment.New(w.Coord, "services/long/deployments/x", deployment.Config{Log: zap.New(logs)})
	if _, err := store.Create(t.Context(), "v1", 4); err != nil {
		t.Fatal(err)
	}
	const all = 60
	for i := range all {
		ctx := deployment.AskedBy(context.Background(), "ann")
		if _, err := store.Apply(ctx, upgradestate.Remark{What: "waive", Detail: string(rune('A' + i))}); err != nil {
			t.Fatal(err)
		}
	}
	d, err := store.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exported := seen.FilterMessage("history").All()
	if len(exported) != d.HistoryDropped || len(exported)+len(d.History) != all || d.HistoryDropped == 0 {
		t.Fatalf("%d entries, of which %d are in the history, %d were dropped and %d exported", all, len(d.History), d.HistoryDropped, len(exported))
	}
	for i, e := range exported {
		if entry := e.ContextMap()["entry"].(upgradestate.Entry); entry.Detail != string(rune('A'+i)) || e.LoggerName != "audit" {
			t.Errorf("exported as number %d by %s: %+v", i, e.LoggerName, entry)
		}
	}
	if got := status.Of(deployment.State{Record: d}, status.Process{}).GetHistoryDropped(); got != int64(d.HistoryDropped) {
		t.Errorf("the status says that %d were dropped", got)
	}
}
