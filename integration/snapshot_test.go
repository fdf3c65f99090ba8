package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestBackToTheSnapshot goes back to an old version that did not follow, by commands: the
// loss is counted first and has to be accepted, and the old data are as the switch left
// them, byte for byte.
func TestBackToTheSnapshot(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const documents = 40
	s := newSystem(ctx, t, settings{oneWay: true})
	for i := range documents {
		insert(ctx, s, "v1", packageDoc("v1", fmt.Sprintf("p-%02d", i), 1))
	}
	controller := s.controller("controller", breakPoint{}).ready(ctx)
	api, _ := controller.addresses()
	dbc := func(args ...string) result {
		t.Helper()
		return execute(ctx, t, []string{"DBCONTROLLER_SERVER=" + api}, args...)
	}
	if r := dbc("begin-upgrade", "deployment", "--target-version", "v2"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	d := s.await(ctx, "the flip", flipped("v2"))
	v1, _ := d.Namespace("v1")
	k, _ := v1.Kind(packagesKind)
	left := collection{s.db["v1"].Collection(k.Physical)}.content(ctx, t)

	packages := s.db["v2"].Collection(packagesKind)
	for i := range 3 {
		insert(ctx, s, "v2", packageDoc("v2", fmt.Sprintf("new-%d", i), 2))
	}
	for _, id := range []string{"p-00", "p-01"} {
		if _, err := packages.UpdateByID(ctx, id, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: int64(9)}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := packages.DeleteOne(ctx, bson.D{{Key: "_id", Value: "p-02"}}); err != nil {
		t.Fatal(err)
	}

	dbc("rollback").refuses(t, "there is no rollback from v2 to v1", "--to-snapshot")
	r := dbc("rollback", "--to-snapshot")
	if want := fmt.Sprintf("loses 3 created, 2 changed, 1 deleted since the switch, of %d groups", documents+3); r.code == 0 || r.stdout != "" || !strings.Contains(r.stderr, want) || !strings.Contains(r.stderr, "--accept-loss") {
		t.Fatalf("it does not say %q: %+v", want, r)
	}
	if now, err := s.record.Get(ctx); err != nil || now.Upgrade != nil {
		t.Fatalf("it was begun: %+v, %v", now.Upgrade, err)
	}
	confirm := r.confirmation(t)
	if v2, _ := d.Namespace("v2"); v2.Identity.Cluster == "" || confirm != s.name+"/"+v2.Identity.Cluster+"/"+v2.Location {
		t.Errorf("to be confirmed is %s", confirm)
	}
	staging := strings.Replace(confirm, "replicaSet/", "replicaSet/0", 1)
	for given, doubt := range map[string]string{"": "", staging: `, because "` + staging + `" confirms something else`} {
		r := dbc("rollback", "--to-snapshot", "--accept-loss", "--confirm", given)
		if r.code == 0 || r.stdout != "" || !strings.Contains(r.stderr, doubt+": to accept that, give --accept-loss --confirm "+confirm) {
			t.Errorf("--confirm %q: %+v", given, r)
		}
	}
	if now, err := s.record.Get(ctx); err != nil || now.Upgrade != nil {
		t.Fatalf("it was begun: %+v, %v", now.Upgrade, err)
	}
	if r := dbc("rollback", "--to-snapshot", "--accept-loss", "--confirm", confirm); r.code != 0 || !strings.Contains(r.stderr, "will: return to v1 as the switch left it") {
		t.Fatalf("%+v", r)
	}
	d = s.await(ctx, "the flip back", flipped("v1"))
	if !d.LastSwitch.Back || !d.LastSwitch.Snapshot {
		t.Errorf("the switch was %+v", d.LastSwitch)
	}
	if now := (collection{s.db["v1"].Collection(packagesKind)}).content(ctx, t); !bytes.Equal(left, now) {
		t.Error("v1 is not as the switch left it")
	}
	if r := dbc("rollback", "--to-snapshot", "--accept-loss", "--confirm", confirm); r.code != 0 || !strings.Contains(r.stderr, "nothing: ") {
		t.Errorf("again: %+v", r)
	}
}
