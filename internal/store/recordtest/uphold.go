package recordtest

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

// This file has the tests of Uphold calls by a process that may have paused.

// fixedUpheld checks that Uphold of an ended or earlier fence changes nothing.
func fixedUpheld(t *testing.T, b *bench, class record.FenceClass) {
	ctx := t.Context()
	k := b.fixed(t)
	k.insert(t, doc("a", 1))
	// Uphold must report no breach.
	nothing := func(f record.Fence) {
		t.Helper()
		found, err := b.uphold(t, k.stopped(f).upheld(f), k.tok.ID)
		if err != nil || len(found) > 0 {
			t.Errorf("uphold %s: found %+v, %v", f.To, found, err)
		}
	}
	first := k.stop(t, class)
	if err := b.Namespace.Fence(ctx, first); err != nil {
		t.Fatal(err)
	}
	nothing(first)
	if err := b.Namespace.Unfence(ctx, first); err != nil {
		t.Fatal(err)
	}
	nothing(first)
	k.insert(t, doc("b", 1))

	// An Uphold for the first fence must not disturb the second one.
	second := k.stop(t, class)
	if err := b.Namespace.Fence(ctx, second); err != nil {
		t.Fatal(err)
	}
	nothing(first)
	nothing(second)
	if err := b.App.Insert(ctx, k.spec.Name, doc("c", 1)); err == nil {
		t.Error("an insert by the application was acknowledged")
	}
	b.wantDocuments(t, k.spec.Name, doc("a", 1), doc("b", 1))
	if second.Renames() {
		fixedOpened(t, k, second)
	}
}

// insertOpened inserts into a kind that was just opened. A role's permission changes without a
// condition. So a process that upholds an ending fence may take it away for a moment.
func (k *kind) insertOpened(t *testing.T, class record.FenceClass, d bson.Raw) {
	t.Helper()
	if class != record.FenceRole {
		k.insert(t, d)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := k.b.App.Insert(ctx, k.spec.Name, d)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("application inserts %s: %v", d, err)
		case <-tick.C:
		}
	}
}

// upheld returns a fence in the form of the Deployment's record while it is in force.
func (k *kind) upheld(f record.Fence) record.Fence {
	f.Token = k.tok
	return f
}

// fixedOpened checks that a kind opened by a flip belongs to its application, even while others
// uphold the old fence.
func fixedOpened(t *testing.T, k *kind, f record.Fence) {
	b, behind := k.b, k.stopped(f)
	sealed := *behind
	// The flip seals the kind with one more rename before it opens it.
	sealed.fence(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var g errgroup.Group
	for range 3 {
		g.Go(func() error {
			for ctx.Err() == nil {
				_, err := b.Namespace.Uphold(t.Context(), behind.upheld(f), []string{k.tok.ID})
				_ = err // between two names the collection may not be found
			}
			return nil
		})
	}
	open := record.Fence{Class: record.FenceUUID, Token: sealed.tok, To: k.spec.Name, Ends: f.To}
	if err := b.Namespace.Fence(t.Context(), open); err != nil {
		t.Errorf("open: %v", err)
	}
	k.insertOpened(t, f.Class, doc("d", 1))
	cancel()
	_ = g.Wait() // it returns no error
	// The old fence has ended, so Uphold must leave the opened kind alone.
	found, err := b.uphold(t, behind.upheld(f), k.tok.ID)
	if err != nil || len(found) > 0 {
		t.Errorf("uphold %s after the opening: found %+v, %v", f.To, found, err)
	}
	if name, err := b.Namespace.Locate(t.Context(), k.tok.ID); err != nil || name != k.spec.Name {
		t.Errorf("locate: %q, %v, want %q", name, err, k.spec.Name)
	}
	k.insert(t, doc("e", 1))
}

// uphold calls Uphold up to three times, like a controller. On a server that other tests keep busy,
// a call may time out.
func (b *bench) uphold(t *testing.T, f record.Fence, known string) (found []record.Breach, err error) {
	t.Helper()
	for range 3 {
		if found, err = b.Namespace.Uphold(t.Context(), f, []string{known}); err == nil {
			break
		}
		t.Logf("uphold: %v", err)
	}
	return found, err
}
