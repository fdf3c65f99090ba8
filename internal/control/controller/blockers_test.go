package controller

import (
	"errors"
	"testing"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	us "dbcontroller.dev/upgradestate"
)

// awayConnection is a database that cannot be opened.
type awayConnection struct{ Connection }

func (awayConnection) Problem() error { return errors.New("no primary") }

// TestWaitsHavePlaces: what a controller waits for names its versions, kinds and itself.
func TestWaitsHavePlaces(t *testing.T) {
	t.Parallel()
	a := &App{cfg: Settings{Databases: []Database{{Version: "v1"}, {Version: "v2"}}}, opts: Options{ID: "c1"}, successors: &successors{}, adoption: &adoption{}}
	a.connections = &connections{databases: map[string]Connection{"v1": awayConnection{}, "v2": awayConnection{}}}
	all := a.waits()
	if len(all) != 2 {
		t.Fatalf("waits %+v", all)
	}
	for i, v := range []string{"v1", "v2"} {
		if b := all[i]; b.Code != us.BlockController || b.Place.Version != v || b.Place.Controller != "c1" || b.Text != "controller c1: no primary" {
			t.Errorf("%s: %+v", v, b)
		}
	}
	// The database does not open because of a moved collection.
	a.adoption.moves.set([]us.Blocker{{Code: us.BlockIdentity, Text: "run 'recover'"}})
	if all := a.waits(); len(all) != 3 || all[0].Code != us.BlockIdentity {
		t.Errorf("waits %+v", all)
	}
	a.adoption.moves.set(nil)
	a.databases = nil
	a.successors.replacements.set([]us.Blocker{unfollowed("v1", "orders", "it was dropped")})
	if all := a.waits(); len(all) != 1 || all[0].Code != us.BlockReplaced || all[0].Place.Kind != "orders" || a.successors.replacements.text() != "it was dropped" {
		t.Errorf("waits %+v", all)
	}
}

// TestLivesHasAPlace: a database that cannot be checked for its beats is a reason of its own, with its
// version.
func TestLivesHasAPlace(t *testing.T) {
	t.Parallel()
	b := &beats{opts: &Options{}, deployment: deployment.New(memcoord.New(), "services/a/deployments/none", deployment.Config{}), connections: &connections{namespaces: map[string]record.Namespace{"v2": memstore.New()}}}
	err := b.lives(t.Context(), "v2")
	if err == nil {
		t.Fatal("it lives without a deployment")
	}
	if b := us.BlockerOf(us.BlockUncoded, err); b.Code != us.BlockIdentity || !b.Place.Equal(us.BlockPlace{Version: "v2"}) {
		t.Errorf("%+v", b)
	}
}
