package integration_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/coord"
)

// TestStoppedOnTheReverseSync stops a controller that has documents in its hand, read from v2
// and about to be written to v1, behind a fence that leaves v1's collection its name and
// identity. They are deleted, and the service goes back to v1: when the controller goes
// on, v1 is active, nothing refuses its token any longer, and no document comes back.
func TestStoppedOnTheReverseSync(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{kinds: "[{from: packages, to: packages, lens: packages.yaml, fence: validator}]"})
	const documents = 40
	s.fill(ctx, newLedger("package"), documents)
	stopped := s.controller("stopped", breakPoint{At: atApply, N: 1}).ready(ctx)
	s.controller("running", breakPoint{}).ready(ctx)
	s.awaitShards(ctx, "stopped", "running")
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	eventually(ctx, t, "the reverse sync is kept", func() error {
		d, err := s.record.Get(ctx)
		if err == nil && len(d.Available) == 0 {
			err = fmt.Errorf("nothing is offered")
		}
		return err
	})
	stopped.arm(ctx)
	v2, v1 := s.db["v2"].Collection(packagesKind), s.db["v1"].Collection(packagesKind)
	if _, err := v2.UpdateMany(ctx, bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 7}}}}); err != nil {
		t.Fatal(err)
	}
	stopped.awaitReached(ctx)
	stopped.signal(ctx, syscall.SIGSTOP)
	s.forget(stopped)
	if _, err := v2.DeleteMany(ctx, bson.D{}); err != nil {
		t.Fatal(err)
	}
	none := func(what string) {
		t.Helper()
		eventually(ctx, t, what, func() error {
			n, err := v1.CountDocuments(ctx, bson.D{})
			if err == nil && n > 0 {
				err = fmt.Errorf("it has %d documents", n)
			}
			return err
		})
	}
	none("the old namespace to follow")
	// What is kept of a direction long ago goes last when one has ended.
	leftover := s.record.Root() + "/plans/0-leftover"
	if _, err := s.etcd.Commit(ctx, nil, []coord.Op{{Key: leftover, Value: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	s.beginTo(ctx, "v1")
	s.await(ctx, "the flip back", flipped("v1"))
	eventually(ctx, t, "what earlier directions left is removed", func() error {
		_, err := s.etcd.Get(ctx, leftover)
		if errors.Is(err, coord.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("it is there (%v)", err)
	})
	stopped.order(orderRelease)
	stopped.signal(ctx, syscall.SIGCONT)
	select {
	case late := <-stopped.late:
		t.Logf("the late apply is told: %s", late.Late)
	case <-ctx.Done():
		t.Fatal("the late apply was not sent")
	}
	if n, err := v1.CountDocuments(ctx, bson.D{}); err != nil || n > 0 {
		t.Errorf("%d documents came back (%v)", n, err)
	}
}
