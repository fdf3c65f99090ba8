package transform_test

import (
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

func TestTasks(t *testing.T) {
	t.Parallel()
	leave := func(record.Record) (bson.Raw, error) { return nil, nil }
	r := transform.NewRegistry("items")
	for _, bad := range []transform.Task{{}, {Name: "a", Version: "v1", Kind: "k"}, {Name: "a", Kind: "k", Func: leave}} {
		if err := r.AddTasks(bad); err == nil {
			t.Errorf("%+v was added", bad)
		}
	}
	if _, err := r.Task("a"); err == nil || err.Error() != `there is no data update "a": there are none here` {
		t.Error(err)
	}
	one := transform.Task{Name: "fill", Version: "v1", Kind: "k", Revision: "1", Func: leave}
	if err := errors.Join(r.AddTasks(one), r.AddTasks(transform.Task{Name: "b", Version: "v1", Kind: "k", Func: leave})); err != nil {
		t.Fatal(err)
	}
	if err := r.AddTasks(one); err == nil {
		t.Error("a name twice")
	}
	if _, err := r.Task("a"); err == nil || err.Error() != `there is no data update "a": there are fill, b` {
		t.Error(err)
	}
	if got, err := r.Task("fill"); err != nil || got.Hash() != one.Hash() || len(r.Tasks()) != 2 {
		t.Errorf("%+v, %v of %d", got, err, len(r.Tasks()))
	}
	other := one
	other.Revision = "2"
	if one.Hash() == other.Hash() {
		t.Error("two revisions have one hash")
	}
}

// TestFollowingTasks: a task follows the switches of one service, to one version of its keys.
func TestFollowingTasks(t *testing.T) {
	t.Parallel()
	task := func(imports ...transform.Import) transform.Task {
		return transform.Task{Name: "a", Version: "v1", Kind: "k", Follow: true, Imports: imports, Func: func(record.Record) (bson.Raw, error) { return nil, nil }}
	}
	branch := transform.Import{Service: "places", Kind: "branches", From: "k", Field: "branch", Keys: transform.NewKeys}
	room, both, payer, old := branch, branch, branch, branch
	room.Kind, room.Field = "rooms", "room"
	both.Keys, payer.Service, old.Keys = transform.BothKeys, "people", transform.OldKeys
	r := transform.NewRegistry("items")
	for want, bad := range map[string]transform.Task{
		"it changes no references to another service":                 task(),
		"it leaves both keys: begin it by hand before the switch":     task(branch, both),
		"it cannot follow places and people by itself":                task(branch, payer),
		"it leaves both new and old keys: make an update for each of": task(branch, old),
	} {
		if err := r.AddTasks(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	followed := task(branch, room)
	byHand := followed
	byHand.Follow = false
	if err := r.AddTasks(followed); err != nil || followed.Hash() != byHand.Hash() {
		t.Errorf("%v; hashes %s and %s, want equal ones: the effect is the same", err, followed.Hash(), byHand.Hash())
	}
}
