package deployment_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/upgradestate"
)

// TestRemoval: from the first commit of a removal on, nobody can use the deployment. All its keys go,
// the record last, and those of a deployment with a longer name stay.
func TestRemoval(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	longer := deployment.New(w.Coord, name+"2", deployment.Config{})
	if _, err := longer.Create(t.Context(), "v1", 4); err != nil {
		t.Fatal(err)
	}
	for i := range 3*coord.MaxOps + 1 {
		deploymenttest.Put(t, w.Coord, deploymenttest.Key(fmt.Sprintf("parked/x/%05d", i)), "{}")
	}
	r, begun, err := w.Store.Removal(t.Context())
	if err != nil || begun {
		t.Fatalf("removal %+v, begun %t, %v", r, begun, err)
	}
	before := r.Record
	r.At, r.By = "2026-01-02T03:04:05Z", "somebody"
	late := r
	if r, err = w.Store.PutRemoval(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Store.PutRemoval(t.Context(), late); !errors.Is(err, coord.ErrConflict) {
		t.Errorf("a second removal: %v", err)
	}
	_, err = w.Store.Get(t.Context())
	var removal *deployment.RemovalError
	if !errors.Is(err, deployment.ErrFormat) || !errors.As(err, &removal) || !strings.Contains(err.Error(), "is being removed since 2026-01-02T03:04:05Z, by somebody") {
		t.Errorf("get: %v", err)
	}
	if _, err := w.Store.Apply(t.Context(), upgradestate.Begin{ID: "u1", TargetVersion: "v2"}); !errors.Is(err, deployment.ErrFormat) {
		t.Errorf("begin: %v", err)
	}
	if _, err := w.Store.Create(t.Context(), "v1", 4); !errors.Is(err, deployment.ErrFormat) {
		t.Errorf("create: %v", err)
	}
	if ds, unreadable, err := w.Store.All(t.Context()); err != nil || len(ds) != 1 || len(unreadable) != 1 {
		t.Errorf("all: %v, unreadable %v, %v", ds, unreadable, err)
	}
	again, begun, err := w.Store.Removal(t.Context())
	before.Revision = again.Revision
	if err != nil || !begun || again.Revision != r.Revision || cmp.Diff(before, again.Record) != "" {
		t.Fatalf("removal %+v of %d, begun %t, %v:\n%s", again, r.Revision, begun, err, cmp.Diff(before, again.Record))
	}
	if err := w.Store.Erase(t.Context(), late); !errors.Is(err, coord.ErrConflict) {
		t.Errorf("erase with an old revision: %v", err)
	}
	if err := w.Store.Erase(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	kvs, _, err := w.Coord.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range kvs {
		keys = append(keys, strings.TrimPrefix(kv.Key, deployment.DefaultPrefix))
	}
	if want := []string{"/index/" + longer.Name(), "/" + longer.Name() + "/record"}; !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
	if d, err := w.Store.Create(t.Context(), "v1", 8); err != nil || d.RingSize != 8 {
		t.Errorf("begin again: %+v, %v", d, err)
	}
}

// TestRemovalIsPutBack: a removal that has not acted can end, and the record is as it was.
func TestRemovalIsPutBack(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	r, _, err := w.Store.Removal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := r.Record
	if r, err = w.Store.PutRemoval(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	bad := upgradestate.Clone(r.Record)
	bad.RingSize = 0
	if err := w.Store.EndRemoval(t.Context(), r, bad); err == nil {
		t.Error("an invalid record is stored")
	}
	if err := w.Store.EndRemoval(t.Context(), r, r.Record); err != nil {
		t.Fatal(err)
	}
	d, err := w.Store.Get(t.Context())
	if before.Revision = d.Revision; err != nil || cmp.Diff(before, d) != "" {
		t.Errorf("%v\n%s", err, cmp.Diff(before, d))
	}
}

// TestForgedRemovals: a removal is carried out as its copy of the record says. One that no deployment
// of this name can have is refused.
func TestForgedRemovals(t *testing.T) {
	t.Parallel()
	for what, value := range map[string]string{
		"another deployment's": `{"format": 1000000, "name": "` + name + `", "removal": {"record": {"format": 1, "name": "services/a/deployments/b", "currentVersion": "v1", "epoch": 1, "ringSize": 4, "namespaces": []}}}`,
		"without a record":     `{"format": 1000000, "name": "` + name + `", "removal": {}}`,
		"without a removal":    `{"format": 1000000, "name": "` + name + `"}`,
		"of another format":    `{"format": 1000001, "name": "` + name + `", "removal": {"record": {}}}`,
		"no JSON":              `{"format": 1000000, "removal": {"record"`,
	} {
		w := deploymenttest.New(t)
		deploymenttest.Put(t, w.Coord, deploymenttest.Key("record"), value)
		if r, _, err := w.Store.Removal(t.Context()); !errors.Is(err, deployment.ErrCorrupt) && !errors.Is(err, deployment.ErrFormat) {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
}

// TestAlive names the processes of a deployment.
func TestAlive(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	if alive, err := w.Store.Alive(t.Context()); err != nil || len(alive) > 0 {
		t.Errorf("of nobody: %q, %v", alive, err)
	}
	lease := deploymenttest.Lease(t, w.Coord)
	if _, err := w.Coord.Commit(t.Context(), nil, []coord.Op{{Key: deploymenttest.Key("progress/c%2F1"), Lease: lease.ID()}}); err != nil {
		t.Fatal(err)
	}
	if alive, err := w.Store.Alive(t.Context()); err != nil || !slices.Equal(alive, []string{"a process that holds progress/c%2F1"}) {
		t.Errorf("of a process that starts: %q, %v", alive, err)
	}
	if _, err := w.Coord.Commit(t.Context(), nil, []coord.Op{{Key: deploymenttest.Key("controllers/c%2F1"), Value: []byte("c/1"), Lease: lease.ID()}}); err != nil {
		t.Fatal(err)
	}
	client := deploymenttest.Server("client-1")
	client.Client = true
	for _, server := range []upgradestate.ServerState{deploymenttest.Server("s/1"), client} {
		if err := w.Store.Register(t.Context(), lease, server); err != nil {
			t.Fatal(err)
		}
	}
	alive, err := w.Store.Alive(t.Context())
	if want := []string{"controller c/1", "application or proxy client-1", "server s/1"}; err != nil || !slices.Equal(alive, want) {
		t.Errorf("%q, %v, want %q", alive, err, want)
	}
}
