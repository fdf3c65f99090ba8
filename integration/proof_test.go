package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/internal/engine/switchover"
)

// noReverseSync is a new version that has forgotten what the old one's unique index is about.
var noReverseSync = settings{
	lens:    "lens: 1\noperations:\n  - remove: {field: section}\n  - add: {field: schema, value: 2}\n",
	kinds:   "[{from: packages, to: packages, lens: packages.yaml, indexes: {packages: [{key: {schema: 1}}]}}]",
	service: "shop.example.com",
}

// fillUnique fills the application's collection and makes its section unique.
func (s *system) fillUnique(ctx context.Context) {
	s.t.Helper()
	docs := make([]any, 50)
	for i := range docs {
		docs[i] = packageDoc("v1", packageKey(i), 0)
	}
	if _, err := s.db["v1"].Collection(packagesKind).InsertMany(ctx, docs); err != nil {
		s.t.Fatal(err)
	}
	_, err := s.db["v1"].Collection(packagesKind).Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys: bson.D{{Key: "section", Value: 1}}, Options: options.Index().SetUnique(true)})
	if err != nil {
		s.t.Fatal(err)
	}
}

// awaitReadiness waits for what is published of the switch.
func (s *system) awaitReadiness(ctx context.Context, what string, ok func(*switchover.Readiness) bool) *switchover.Readiness {
	s.t.Helper()
	var last *switchover.Readiness
	eventually(ctx, s.t, what, func() error {
		var err error
		if last, err = s.record.Readiness(ctx); err != nil {
			return err
		}
		if last == nil || !ok(last) {
			return fmt.Errorf("the readiness report is %+v", last)
		}
		return nil
	})
	return last
}

// TestNoSwitchWithoutAReverseSync: the switch does not begin, says what would not come back,
// and begins by itself once that is put right.
func TestNoSwitchWithoutAReverseSync(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, noReverseSync)
	s.fillUnique(ctx)
	s.controller("controller", breakPoint{}).ready(ctx)
	s.begin(ctx)
	o := s.awaitReadiness(ctx, "a failed proof", func(o *switchover.Readiness) bool {
		return len(o.WaitsFor) == 1 && strings.Contains(o.WaitsFor[0], "section_1") &&
			!strings.HasPrefix(o.Rollback, "not proved yet") // the two are found out one after the other
	})
	if !strings.Contains(o.WaitsFor[0], "proof of the rollback") || !strings.Contains(o.WaitsFor[0], "disabled: true") ||
		!strings.HasPrefix(o.Rollback, "not proved: ") {
		t.Errorf("the readiness report is %+v", o)
	}
	s.awaitSync(ctx)
	if d, err := s.record.Get(ctx); err != nil || d.Upgrade == nil || d.Upgrade.Attempt != 1 {
		t.Fatalf("%v: upgrade %+v, want one that waits", err, d.Upgrade)
	}
	if err := s.db["v1"].Collection(packagesKind).Indexes().DropOne(ctx, "section_1"); err != nil {
		t.Fatal(err)
	}
	s.await(ctx, "the flip", flipped("v2"))
	eventually(ctx, t, "the readiness report is gone", func() error {
		if o, err := s.record.Readiness(ctx); err != nil || o != nil {
			return fmt.Errorf("%w: readiness %+v", err, o)
		}
		return nil
	})
}

// TestSwitchWithTheReverseSyncDisabled: who wants none has none proved.
func TestSwitchWithTheReverseSyncDisabled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	oneWay := noReverseSync
	oneWay.oneWay = true
	s := newSystem(ctx, t, oneWay)
	s.fillUnique(ctx)
	s.controller("controller", breakPoint{}).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
}
