package api_test

import (
	"strings"
	"testing"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/upgradestate"
)

// TestRemoveDeployment: a deployment that no controller has worked on can be removed, with its name as
// the confirmation, while no process of it is alive. All others are refused with the command to run.
func TestRemoveDeployment(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	a := serve(t, w)
	name := func(more string) string { return `{"name": "` + other + `"` + more + `}` }
	a.fails(t, "RemoveDeployment", name(""), "not_found: "+other+": deployment does not exist")
	a.fails(t, "RemoveDeployment", `{}`, `invalid_argument: name "": want the deployment to remove`)
	a.fails(t, "RemoveDeployment", `{"name": "services/../deployments/x"}`, `invalid_argument: name "services/../deployments/x": want services/{service}/deployments/{region}`)
	a.fails(t, "RemoveDeployment", `{"name": "`+deploymenttest.Name+`"}`, "failed_precondition: remove: this controller works on "+deploymenttest.Name+": stop its processes, and run 'dbcontroller remove --config FILE' with its configuration")

	s := deployment.New(w.Coord, other, deployment.Config{})
	create := func() {
		t.Helper()
		if _, err := s.Create(t.Context(), "v1", 4); err != nil {
			t.Fatal(err)
		}
	}
	create()
	var shown struct {
		Effects []string `json:"effects"`
		Confirm string   `json:"confirm"`
	}
	a.ok(t, "RemoveDeployment", name(`, "dryRun": true`), &shown)
	if shown.Confirm != other || len(shown.Effects) != 1 || !strings.HasPrefix(shown.Effects[0], "delete all keys of "+other) {
		t.Errorf("dry run: %+v", shown)
	}
	final := "failed_precondition: remove: this is final: it would delete all keys of " + other + " in etcd, with its history; it has no databases; to do that, give the name again as confirm, not "
	a.fails(t, "RemoveDeployment", name(""), final+`""`)
	a.fails(t, "RemoveDeployment", name(`, "confirm": "`+other+`2"`), final+`"`+other+`2"`)
	lease := deploymenttest.Lease(t, w.Coord)
	if err := s.Register(t.Context(), lease, deploymenttest.Server("s-1")); err != nil {
		t.Fatal(err)
	}
	a.fails(t, "RemoveDeployment", name(`, "confirm": "`+other+`"`), "failed_precondition: remove: server s-1 is alive, a process of the deployment: stop all of them, and wait until their leases end")
	if err := lease.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Another call died after its first commit.
	r, _, err := s.Removal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.At, r.By = "2026-01-02T03:04:05Z", "somebody"
	if _, err := s.PutRemoval(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	a.fails(t, "GetDeployment", name(""), "failed_precondition: "+other+" is being removed since 2026-01-02T03:04:05Z, by somebody: to finish that, run 'dbcontroller remove' again, or call RemoveDeployment")
	a.ok(t, "RemoveDeployment", name(`, "confirm": "`+other+`"`), &shown)
	kvs, _, err := w.Coord.List(t.Context(), "")
	for _, kv := range kvs {
		if strings.Contains(kv.Key, other) {
			t.Errorf("%s is left", kv.Key)
		}
	}
	if err != nil || len(kvs) == 0 {
		t.Errorf("%d keys, %v", len(kvs), err)
	}

	create()
	if _, err := s.Apply(t.Context(), upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{Version: "v1", Location: "mongo:a"}}); err != nil {
		t.Fatal(err)
	}
	a.fails(t, "RemoveDeployment", name(`, "confirm": "`+other+`"`), "failed_precondition: remove: controllers have worked on "+other+", so its databases hold data of theirs: stop its processes, and run 'dbcontroller remove --config FILE' with its configuration")
}
