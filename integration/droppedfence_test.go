package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
)

// TestDroppedFence: after a switch an application of the old version drops what it takes
// for its collection, and writes. It is acknowledged, where nobody looks. The fence is put
// back, what was written is kept, and it counts until a person has dealt with it.
func TestDroppedFence(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{kinds: "[{from: packages, to: packages, lens: packages.yaml, fence: view}]"})
	const documents = 50
	s.fill(ctx, newLedger("package"), documents)
	first := s.controller("controller", breakPoint{}).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	get := func() *dbv1.Deployment {
		t.Helper()
		res, err := s.apis()[0].GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg
	}
	verify := func() *dbv1.VerifyReport {
		t.Helper()
		stream, err := s.apis()[0].Verify(ctx, connect.NewRequest(&dbv1.VerifyRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		var last *dbv1.VerifyReport
		for stream.Receive() {
			last = stream.Msg().GetReport()
		}
		if err := errors.Join(stream.Err(), stream.Close()); err != nil || last == nil {
			t.Fatal(err)
		}
		return last
	}
	eventually(ctx, t, "a safe rollback", func() error {
		if r := get().GetRollbackSafe(); !r.GetSafe() {
			return errors.New(r.GetReason())
		}
		return nil
	})

	old := s.db["v1"].Collection(packagesKind)
	if _, err := s.db["v2"].Collection(packagesKind).UpdateByID(ctx, packageKey(0), bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 9}}}}); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the update to be followed", func() error {
		return old.FindOne(ctx, bson.D{{Key: "_id", Value: packageKey(0)}, {Key: "n", Value: 9}}).Err()
	})
	insert := func() error {
		_, err := old.InsertOne(ctx, bson.D{{Key: "_id", Value: fmt.Sprint("stray-", bson.NewObjectID().Hex())}})
		return err
	}
	stopped := func(err error) bool {
		var refusal mongo.ServerError
		return errors.As(err, &refusal) && refusal.HasErrorCode(166)
	}
	if err := insert(); !stopped(err) {
		t.Fatalf("write to the old version: %v", err)
	}
	acknowledged := 0
	eventually(ctx, t, "seven writes past the fence", func() error { // it may be put back at once
		if err := old.Drop(ctx); err != nil {
			t.Fatal(err)
		}
		for acknowledged < 7 && insert() == nil {
			acknowledged++
		}
		if acknowledged < 7 {
			return fmt.Errorf("%d were acknowledged", acknowledged)
		}
		return nil
	})
	eventually(ctx, t, "the fence to be back", func() error {
		if err := insert(); !stopped(err) {
			if err == nil {
				acknowledged++
			}
			return fmt.Errorf("a write is answered with %v", err)
		}
		return nil
	})
	counted := func(d *dbv1.Deployment) error {
		n := 0
		for _, b := range d.GetBreaches() {
			if b.GetAside() == "" {
				continue
			}
			there, err := s.db["v1"].Collection(b.GetAside()).CountDocuments(ctx, bson.D{})
			if err != nil || there != b.GetCount() {
				return fmt.Errorf("%s has %d documents, %d are shown: %w", b.GetAside(), there, b.GetCount(), err)
			}
			n += int(there)
		}
		r := d.GetRollbackSafe()
		if n != acknowledged || r.GetSafe() || !strings.Contains(r.GetReason(), "accept-breaches") {
			return fmt.Errorf("%d of %d are shown, rollback %v", n, acknowledged, r)
		}
		return nil
	}
	eventually(ctx, t, "what was written past the fence to count", func() error { return counted(get()) })
	if rep := verify(); rep.GetEqual() || rep.GetMismatched() < int64(acknowledged) {
		t.Errorf("the comparison says %v", rep)
	}

	// Another controller knows it as well, and finds nothing new.
	s.kill(first)
	s.controller("another", breakPoint{}).ready(ctx)
	eventually(ctx, t, "what was written past the fence to count", func() error { return counted(get()) })
	if _, err := s.apis()[0].AcceptBreaches(ctx, connect.NewRequest(&dbv1.AcceptBreachesRequest{})); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "a safe rollback", func() error {
		if r := get().GetRollbackSafe(); !r.GetSafe() {
			return errors.New(r.GetReason())
		}
		return nil
	})
	if rep := verify(); !rep.GetEqual() {
		t.Errorf("the comparison says %v", rep)
	}
	if err := insert(); !stopped(err) {
		t.Errorf("write to the old version: %v", err)
	}
}
