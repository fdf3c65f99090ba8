package integration_test

import (
	"context"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestLateDeletes: where the fence lets deletes through, those of an application that does
// not follow are counted after the switch, and those by which the reverse sync follows the new
// namespace are not taken for them. Who goes back finds what was deleted late all the same.
func TestLateDeletes(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{kinds: "[{from: packages, to: packages, lens: packages.yaml, fence: validator}]"})
	const documents = 200
	l := newLedger("package")
	s.fill(ctx, l, documents)
	first := s.controller("controller", breakPoint{}).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	const followed, late = 20, 7
	for i := range followed {
		if _, err := s.db["v2"].Collection(packagesKind).DeleteOne(ctx, bson.D{{Key: "_id", Value: packageKey(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(ctx, t, "the old namespace to follow", func() error {
		n, err := s.db["v1"].Collection(packagesKind).CountDocuments(ctx, bson.D{})
		if err == nil && n != documents-followed {
			err = fmt.Errorf("it has %d documents", n)
		}
		return err
	})
	for i := range late {
		res, err := s.db["v1"].Collection(packagesKind).DeleteOne(ctx, bson.D{{Key: "_id", Value: packageKey(documents - 1 - i)}})
		if err != nil || res.DeletedCount != 1 {
			t.Fatalf("late delete: %+v, %v", res, err)
		}
	}
	eventually(ctx, t, "the late deletes are reported", func() error {
		ps, err := s.record.Progress(ctx)
		if err != nil {
			return err
		}
		var n int64
		for _, p := range ps {
			n += p.LateDeletes
		}
		if n > late {
			t.Fatalf("%d late deletes are reported, there were %d", n, late)
		}
		if n != late {
			return fmt.Errorf("%d are, of %d", n, late)
		}
		return nil
	})
	// Another process goes on with it. One that the reverse sync has written:
	s.kill(first)
	s.controller("another", breakPoint{}).ready(ctx)
	if _, err := s.db["v2"].Collection(packagesKind).UpdateByID(ctx, packageKey(followed), bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 9}}}}); err != nil {
		t.Fatal(err)
	}
	written := bson.D{{Key: "_id", Value: packageKey(followed)}, {Key: "n", Value: 9}}
	old := s.db["v1"].Collection(packagesKind)
	eventually(ctx, t, "the update to be followed", func() error { return old.FindOne(ctx, written).Err() })
	if res, err := old.DeleteOne(ctx, written); err != nil || res.DeletedCount != 1 {
		t.Fatalf("late delete: %+v, %v", res, err)
	}
	eventually(ctx, t, "what was deleted late to be back", func() error {
		n, err := old.CountDocuments(ctx, bson.D{})
		if err == nil && n != documents-followed {
			err = fmt.Errorf("the old namespace has %d documents", n)
		}
		return err
	})
	n, err := s.db["v2"].Collection(packagesKind).CountDocuments(ctx, bson.D{})
	if err != nil || n != documents-followed {
		t.Errorf("v2 has %d documents (%v): a late delete was applied", n, err)
	}
}
