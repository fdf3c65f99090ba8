package api_test

import (
	"testing"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/coord/memcoord"
)

// TestStartingIsSaid: while a controller prepares a version, its answers name the version and the cause
// of the wait.
func TestStartingIsSaid(t *testing.T) {
	t.Parallel()
	store := memcoord.New()
	w := deploymenttest.World{Coord: store, Store: deployment.New(store, name, deployment.Config{})} // nothing is created yet
	why := "database of v2: it does not answer"
	a := serveWith(t, w, api.Config{Starting: func(string) string { return why }})
	a.fails(t, "GetDeployment", `{}`, `not_found: `+name+`: deployment does not exist yet: this controller is starting: database of v2: it does not answer: ask again`)
	a.fails(t, "SetPace", `{"maxRate": 7}`, `not_found: setPace: `+name+`: deployment does not exist yet: this controller is starting: database of v2: it does not answer: ask again`)
	if _, err := w.Store.Create(t.Context(), "v1", 4); err != nil {
		t.Fatal(err)
	}
	w.WithVersions(t)
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v3"}`, `unavailable: begin-upgrade: this controller is starting: database of v2: it does not answer: ask again`)
	why = ""
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v3"}`, `failed_precondition: begin-upgrade: unknown version "v3": known are v1, v2; a version becomes known when a controller configured with it runs`)
}
