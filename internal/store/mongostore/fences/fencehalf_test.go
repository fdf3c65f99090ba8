package fences_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// halfway is the fail point that pauses an applyOps after an operation. The command holds the lock of
// the whole server meanwhile.
const halfway = "applyOpsPauseBetweenOperations"

// pauseAfter pauses the next applyOps after so many operations, and returns what waits for that.
func pauseAfter(t *testing.T, b *storetest.Bench, operations int) (paused func()) {
	t.Helper()
	var was struct{ Count int }
	err := b.Raw.Client().Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: halfway}, {Key: "mode", Value: bson.D{{Key: "skip", Value: operations - 1}}},
	}).Decode(&was)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		err := b.Raw.Client().Database("admin").RunCommand(t.Context(), bson.D{
			{Key: "waitForFailPoint", Value: halfway}, {Key: "timesEntered", Value: was.Count + 1}, {Key: "maxTimeMS", Value: time.Minute.Milliseconds()},
		}).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func goOn(t *testing.T, b *storetest.Bench) {
	t.Helper()
	err := b.Raw.Client().Database("admin").RunCommand(t.Context(), bson.D{{Key: "configureFailPoint", Value: halfway}, {Key: "mode", Value: "off"}}).Err()
	if err != nil {
		t.Fatal(err)
	}
}

// running waits until a command of this kind runs that meets the condition.
func running(t *testing.T, b *storetest.Bench, command string, condition bson.E) {
	t.Helper()
	storetest.WaitFor(t, func() bool {
		cursor, err := b.Admin().Aggregate(t.Context(), bson.A{
			bson.D{{Key: "$currentOp", Value: bson.D{{Key: "localOps", Value: true}}}},
			bson.D{{Key: "$match", Value: bson.D{{Key: "command." + command, Value: bson.D{{Key: "$exists", Value: true}}}, condition}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var found []bson.Raw
		if err := cursor.All(t.Context(), &found); err != nil {
			t.Fatal(err)
		}
		return len(found) > 0
	})
}

func ranFor(d time.Duration) bson.E {
	return bson.E{Key: "microsecs_running", Value: bson.D{{Key: "$gt", Value: d.Microseconds()}}}
}

// endedHalfway does something whose applyOps the server ends after its second operation, because its
// time is over. A client's insert waits for the lock meanwhile.
func endedHalfway(t *testing.T, b *storetest.Bench, id string, do func() error) (err, inserted error) {
	t.Helper()
	paused := pauseAfter(t, b, 2)
	did, insert := make(chan error, 1), make(chan error, 1)
	go func() { did <- do() }()
	paused()
	go func() {
		_, err := b.Raw.Collection("orders").InsertOne(context.WithoutCancel(t.Context()), bson.D{{Key: "_id", Value: id}})
		insert <- err
	}()
	running(t, b, "insert", bson.E{Key: "waitingForLock", Value: true})
	running(t, b, "applyOps", ranFor(conn.DoneWait))
	goOn(t, b)
	return <-did, <-insert
}

func openGate(t *testing.T, b *storetest.Bench, f record.Fence) {
	t.Helper()
	if err := b.UntilDone(t.Context(), "", func(ctx context.Context) error { return b.OpenGate(ctx, f) }); err != nil {
		t.Fatal(err)
	}
}

// TestFenceEndedHalfway: the time limit of a fence, or of its end, passes between its operations. The
// server ends the command there, and a waiting insert creates a collection under the kind's name. What
// was acknowledged is in the kind in the end.
func TestFenceEndedHalfway(t *testing.T) {
	b := storetest.Unreliable(t).Bench
	f := record.Fence{Class: record.FenceView, Token: b.Fixed(t, "orders")}
	documents, n := 2, 0
	// On a busy machine the next attempt can be faster than the insert.
	for taken := false; !taken; documents++ { // settled writes one
		n++
		f.To = fmt.Sprintf("orders.n%d", n)
		openGate(t, b, f)
		err, refused := endedHalfway(t, b, f.To, func() error { return b.Fence(t.Context(), f) })
		switch taken = errors.Is(err, record.ErrTaken); {
		case taken && refused == nil:
			documents++
		case err != nil || !conn.HasCode(refused, conn.CodeViewWrite):
			t.Fatalf("the fence: %v; the insert: %v", err, refused)
		}
		if err := b.Unfence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		settled(t, b, f, documents, 0)
	}
	for taken := false; !taken; documents += 2 {
		n++
		f.To = fmt.Sprintf("orders.n%d", n)
		if err := b.Fence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		err, refused := endedHalfway(t, b, f.To, func() error { return b.Unfence(t.Context(), f) })
		if err != nil || refused != nil {
			t.Fatalf("the end of the fence: %v; the insert: %v", err, refused)
		}
		note, err := b.Noted(t.Context(), conn.NoteStrays+f.To)
		if err != nil {
			t.Fatal(err)
		}
		taken = note != nil
		settled(t, b, f, documents+1, 0)
	}
}

// tries bounds the repetitions of a test on a busy machine.
const tries = 50

// unended does something, and fails the test if the server ends an applyOps of it before its time.
func unended(t *testing.T, do func() error, fails func(command string, do func(failed bool))) (ended bool) {
	t.Helper()
	early := false
	began := time.Now()
	fails("applyOps", func(failed bool) { ended, early = failed, failed && time.Since(began) < conn.DoneWait })
	if err := do(); err != nil && !errors.Is(err, record.ErrTaken) {
		t.Fatal(err)
	}
	if early {
		t.Fatal("the server ended the command before its time")
	}
	return ended
}

// pausedBeyondLockWait runs do, whose applyOps pauses after its second operation for longer than it may
// wait for its lock. It reports whether the server ended that command.
func pausedBeyondLockWait(t *testing.T, b *storetest.Bench, do func() error, fails func(command string, do func(failed bool))) (ended bool) {
	t.Helper()
	paused := pauseAfter(t, b, 2)
	var g errgroup.Group
	g.Go(func() error {
		paused()
		running(t, b, "applyOps", ranFor(conn.LockWait))
		goOn(t, b)
		return nil
	})
	ended = unended(t, do, fails)
	_ = g.Wait()
	return ended
}

// TestFenceOutlastsTheWaitForItsLock: between the operations of a fence more time passes than it may
// wait for its lock. The server goes on with them.
func TestFenceOutlastsTheWaitForItsLock(t *testing.T) {
	w := storetest.Unreliable(t)
	f := record.Fence{Class: record.FenceView, Token: w.Fixed(t, "orders")}
	for n, ended := 1, true; ended; n++ { // on a busy machine its whole time can pass
		if n > tries {
			t.Fatal("the server ended each command")
		}
		f.To = fmt.Sprintf("orders.n%d", n)
		openGate(t, w.Bench, f)
		ended = pausedBeyondLockWait(t, w.Bench, func() error { return w.Fence(t.Context(), f) }, w.Once)
		if err := w.Unfence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFenceGoesOnWhenItsLockIsFree: a client's open transaction holds up a fence, which ends it. The
// command that waited for the lock goes on, instead of another one, so that its time is not used up.
func TestFenceGoesOnWhenItsLockIsFree(t *testing.T) {
	w := storetest.Unreliable(t)
	w.Run(t, bson.D{{Key: "create", Value: "elsewhere"}})
	f := record.Fence{Class: record.FenceView, Token: w.Fixed(t, "orders")}
	for n, ended := 1, true; ended; n++ { // on a busy machine its whole time can pass
		if n > tries {
			t.Fatal("the server ended each command")
		}
		f.To = fmt.Sprintf("orders.n%d", n)
		openGate(t, w.Bench, f)
		holder := openTransaction(t, w.Bench, "elsewhere", n)
		ended = unended(t, func() error { return w.Fence(t.Context(), f) }, w.Once)
		if err := holder.CommitTransaction(t.Context()); !conn.HasCode(err, conn.CodeNoSuchTransaction) {
			t.Errorf("commit of what held up the fence: %v", err)
		}
		if err := w.Unfence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFenceThatAwaitsAMajorityEndsNoTransaction: a fence is done, and waits for a majority that comes
// late. Nobody's transaction is in its way.
func TestFenceThatAwaitsAMajorityEndsNoTransaction(t *testing.T) {
	r := storetest.NewReplicas(t)
	f := record.Fence{Class: record.FenceView, Token: r.Fixed(t, "orders"), To: "orders.n1"}
	r.Run(t, bson.D{{Key: "create", Value: "elsewhere"}})
	openGate(t, r.Bench, f)
	primary := r.Primary(t, -1)
	r.Replication(t, primary, false)
	passed := make(chan error, 1)
	go func() { _, err := r.ThroughGate(t.Context(), f); passed <- err }()
	storetest.WaitFor(t, func() bool {
		view, err := r.CollectionNamed(t.Context(), "orders")
		return err == nil && view != nil && view.Type == "view"
	})
	bystander := openTransaction(t, r.Bench, "elsewhere", 1)
	storetest.WaitFor(t, func() bool {
		open, err := r.OpenTransactions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(open) == 0 || open[0].OpenMicros > 3*conn.LockWait.Microseconds()
	})
	r.Replication(t, primary, true)
	if err := bystander.CommitTransaction(t.Context()); err != nil {
		t.Errorf("commit: %v", err)
	}
	if err := <-passed; err != nil {
		t.Logf("the fence: %v", err) // without a majority in time
	}
}

// openTransaction opens a transaction that holds a collection.
func openTransaction(t *testing.T, b *storetest.Bench, coll string, id any) *mongo.Session {
	t.Helper()
	s, err := b.Raw.Client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.EndSession(context.Background()) })
	if err := s.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Raw.Collection(coll).InsertOne(mongo.NewSessionContext(t.Context(), s), bson.D{{Key: "_id", Value: id}}); err != nil {
		t.Fatal(err)
	}
	return s
}
