package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo"
)

// TestKillInTransaction kills the only controller between the writes of a transaction and
// its commit. MongoDB would keep the transaction, and refuse to others what it has
// written, for a minute; the controller that is started next must not wait for that.
func TestKillInTransaction(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server := start(ctx, t, localmongo.Options{TestCommands: true})
	s := newSystem(ctx, t, settings{
		uris: map[string]string{"v1": server.URI(), "v2": server.URI()}, copy: "{auto: true, workers: 2}",
	})
	copies := s.watchCopy(ctx)
	tr := newTraffic(ctx, s, documents)
	first := s.run("first").ready(ctx)
	s.awaitSync(ctx)

	admin := s.db["v1"].Client().Database("admin")
	// Longer than the test lasts: one that waits for MongoDB to give up the transaction fails.
	limit := bson.D{{Key: "setParameter", Value: 1}, {Key: "transactionLifetimeLimitSeconds", Value: 2 * int(patience.Seconds())}}
	if err := admin.RunCommand(ctx, limit).Err(); err != nil {
		t.Fatal(err)
	}
	failCommit := func(mode any) {
		t.Helper()
		err := admin.RunCommand(ctx, bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode},
			{Key: "data", Value: bson.D{
				{Key: "failCommands", Value: bson.A{"commitTransaction"}}, {Key: "closeConnection", Value: true}, {Key: "appName", Value: "dbcontroller"},
			}},
		}).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	failCommit("alwaysOn")
	tr.start(ctx, s.server("server", 0).ready(ctx))
	// It wants a maxTimeMS, which the driver makes of ctx.
	err := admin.RunCommand(ctx, bson.D{{Key: "waitForFailPoint", Value: "failCommand"}, {Key: "timesEntered", Value: 1}}).Err()
	if err != nil {
		t.Fatal(err)
	}
	s.kill(first)
	killed := time.Now()
	failCommit("off")
	if err := s.abandoned(ctx); err != nil {
		t.Fatal(err)
	}
	s.run("second").ready(ctx)
	s.begin(ctx)
	d := s.await(ctx, "the flip", flipped("v2"))
	took := time.Since(killed)
	tr.awaitWrites(ctx, "v2", 10)
	tr.settle(ctx, d)
	begun, switches := copies.started()
	pause, n := tr.processes.pause(begun)
	t.Logf("KILL in a transaction, 1 controllers: switched %s after the kill; write pause of the BBS API %s (of %d writes); switches %d, %v",
		took.Round(time.Millisecond), pause.Round(time.Millisecond), n, switches, d.LastSwitch.Millis)
}

// abandoned makes sure that a controller's transaction is open and has no owner.
func (s *system) abandoned(ctx context.Context) error {
	cursor, err := s.db["v1"].Client().Database("admin").Aggregate(ctx, bson.A{
		bson.D{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "idleSessions", Value: true}}}},
		bson.D{{Key: "$match", Value: bson.D{
			{Key: "appName", Value: "dbcontroller"}, {Key: "transaction.parameters.autocommit", Value: false}, {Key: "active", Value: false},
		}}},
	})
	if err != nil {
		return err
	}
	var open []bson.Raw
	if err := cursor.All(ctx, &open); err != nil {
		return err
	}
	if len(open) == 0 {
		return errors.New("no transaction was left open: the kill came at another place than it should")
	}
	return nil
}
