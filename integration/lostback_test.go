package integration_test

import (
	"context"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/upgradestate"
)

// TestRecoverAfterALostRollback: an upgrade was rolled back, and then the old version's database is
// lost. Controllers name the command that serves what the new version has followed until then, and it
// does so: applications of the new version find all of it under their name, and write.
func TestRecoverAfterALostRollback(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s := newSystem(ctx, t, settings{})
	insert(ctx, s, "v1", packageDoc("v1", "before", 1))
	c := s.controller("controller", breakPoint{}).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the old version to follow", func(d upgradestate.Deployment) bool { return flipped("v2")(d) && upgradestate.ReverseSynced(d) })
	s.beginTo(ctx, "v1")
	d := s.await(ctx, "the rollback", func(d upgradestate.Deployment) bool { return flipped("v1")(d) && upgradestate.ReverseSynced(d) })
	s.awaitMarked(ctx, d.Epoch)
	insert(ctx, s, "v1", packageDoc("v1", "since", 2))
	v2, _ := d.Namespace("v2")
	left, _ := v2.Kind(packagesKind)
	eventually(ctx, t, "v2 follows", func() error {
		return s.db["v2"].Collection(left.Physical).FindOne(ctx, bson.D{{Key: "_id", Value: "since"}}).Err()
	})
	if code := c.terminate(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.forget(c)
	if err := drop(ctx, s.db["v1"]); err != nil {
		t.Fatal(err)
	}
	s.refusesToRun(ctx, nil, "database of v1", "it is empty or the wrong database", "stop all controllers and run 'dbcontroller recover --config", "--current v2'")
	confirm := s.recover(ctx, "--current", "v2").confirmation(t)
	if r := s.recover(ctx, "--current", "v2", "--confirm", confirm); r.code != 0 || !strings.Contains(r.stderr, "done: "+s.name+" is at v2") {
		t.Fatalf("%+v", r)
	}
	s.controller("later", breakPoint{}).listening(ctx)
	s.await(ctx, "v2 to be given back to its application", flipped("v2"))
	if n, err := s.db["v2"].Collection(packagesKind).CountDocuments(ctx, bson.D{}); err != nil || n != 2 {
		t.Errorf("v2 has %d documents of 2 (%v)", n, err)
	}
	insert(ctx, s, "v2", packageDoc("v2", "afterwards", 3))
}
