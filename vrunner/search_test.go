package vrunner

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

func deployed(version string, epoch uint64, revision int64) upgradestate.Deployment {
	return upgradestate.Deployment{Format: upgradestate.Format, Name: "services/s/deployments/d", CurrentVersion: version, Epoch: epoch, Revision: revision}
}

// searcher is an index that remembers what it was asked.
type searcher struct {
	since []time.Time
	kinds []string
	stuck bool // it is never up to date
}

func (s *searcher) Searched(kind, field string) bool { return kind == "items" && field != "secret" }

func (s *searcher) Search(ctx context.Context, req record.SearchRequest, since time.Time) (record.SearchPage, error) {
	if s.stuck {
		<-ctx.Done()
		return record.SearchPage{}, context.Cause(ctx)
	}
	s.since, s.kinds = append(s.since, since), append(s.kinds, req.Kind)
	return record.SearchPage{Names: []string{"a"}, Done: true}, nil
}

// TestSearchAfterFlip: the index of the active version counts only with everything from before this
// server learned that the version is active; the index of another version as it is.
func TestSearchAfterFlip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two := &searcher{}, &searcher{}
		r := New(nil, map[string]Database{"v1": {Search: one}, "v2": {Search: two}, "v3": {}}, func(string, map[string]*View) Stack { return Stack{} }, Config{}, nil)
		views := map[string]*View{}
		for v, s := range map[string]Searcher{"v1": one, "v2": two, "v3": nil} {
			views[v] = &View{runner: r, version: v, search: s}
		}
		began := time.Now()
		r.accept(deployed("v1", 1, 1))
		ask := func(version string, ctx context.Context) error {
			_, err := views[version].Search(ctx, record.SearchRequest{Kind: "items"})
			return err
		}
		check := func(got []time.Time, want ...time.Time) {
			t.Helper()
			if len(got) != len(want) {
				t.Fatalf("asked %v, want %v", got, want)
			}
			for i := range want {
				if !got[i].Equal(want[i]) {
					t.Errorf("asked %v, want %v", got, want)
				}
			}
		}
		if err := errors.Join(ask("v1", t.Context()), ask("v2", t.Context())); err != nil {
			t.Fatal(err)
		}
		check(one.since, began)
		check(two.since, time.Time{})
		time.Sleep(time.Minute)
		r.accept(deployed("v1", 1, 2)) // another change of the record
		if err := ask("v1", t.Context()); err != nil {
			t.Fatal(err)
		}
		check(one.since, began, began)
		flipped := time.Now()
		r.accept(deployed("v2", 2, 3))
		time.Sleep(time.Second)
		if err := errors.Join(ask("v1", t.Context()), ask("v2", t.Context())); err != nil {
			t.Fatal(err)
		}
		check(one.since, began, began, time.Time{})
		check(two.since, time.Time{}, flipped)

		// A request of the former stack runs again on the new one.
		req := &request{version: "v1"}
		if err := ask("v1", context.WithValue(t.Context(), requestKey{}, req)); !errors.Is(err, record.ErrFenced) || !req.moved.Load() {
			t.Errorf("a request of the former stack: %v", err)
		}
		var unsupported *record.UnsupportedError
		if err := ask("v3", t.Context()); !errors.As(err, &unsupported) || views["v3"].Searched("items", "") {
			t.Errorf("without an index: %v", err)
		}
		two.stuck = true
		begun := time.Now()
		err := ask("v2", t.Context())
		if answer, ok := refusal.In(err); !ok || answer == nil || time.Since(begun) != r.cfg.HoldCap {
			t.Errorf("an index that is behind, after %v: %v", time.Since(begun), err)
		}
	})
}
