package vrunner_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// TestSelectThroughTheSwitch: a read of two kinds at one moment neither fails nor sees old data
// while the fence moves one of them after the other. It waits where it has to.
func TestSelectThroughTheSwitch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		kinds := map[string][]record.KindSpec{"v1": {{Name: "a"}, {Name: "b"}}, "v2": {{Name: "a"}, {Name: "b"}}}
		w := newWorld(ctx, t, kinds)
		for _, kind := range []string{"a", "b"} {
			w.put(ctx, "v1", kind, "x", "1")
			w.put(ctx, "v2", kind, "x", "2")
		}
		stack := func(version string, views map[string]*vrunner.View) vrunner.Stack {
			return vrunner.Stack{Write: func(*http.Request) bool { return false }, Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
				out.Header().Set("Version", version)
				view := vrunner.BatchStore(views[version])
				recs, err := view.Select(r.Context(), []record.Selector{{Kind: "a", Key: record.StringKey("x")}, {Kind: "b", Key: record.StringKey("x")}}, r.URL.Path == "/list")
				if err == nil {
					var names []string
					if names, err = view.ListNames(r.Context(), "b", "", "", 0); err == nil && !slices.Equal(names, []string{"x"}) {
						t.Errorf("%s: names %q", version, names)
					}
				}
				if r.URL.Path == "/with" && err == nil {
					var listed, with []record.Record
					listed, with, err = views[version].ListWith(r.Context(), "a", "", "", 0, []string{"b"}, func(recs []record.Record) ([]record.Selector, error) {
						return []record.Selector{{Kind: "b", Key: recs[0].Key}}, nil
					})
					recs = append(listed, with...)
				}
				if r.URL.Path == "/at" && err == nil {
					var pos record.Position
					var snap record.Snapshot
					if _, pos, err = views[version].Since(r.Context(), record.Position{}, "a", "b"); err == nil {
						snap, err = views[version].SelectAt(r.Context(), []record.Selector{{Kind: "a", Key: record.StringKey("x")}, {Kind: "b", Key: record.StringKey("x")}})
					}
					if recs = snap.Records; err == nil && snap.Version.Compare(pos.At) < 0 {
						t.Errorf("%s: read at %v, before %v", version, snap.Version, pos.At)
					}
				}
				for _, rec := range recs {
					_, _ = out.Write([]byte(rec.Doc.Lookup("value").StringValue()))
				}
				if err != nil {
					answer(out, err)
				}
			})}
		}
		r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), stack, vrunner.Config{ID: "server"}, nil)
		go func() { _ = r.Run(ctx) }() // ends with ctx
		synctest.Wait()
		read := func(what, version string) {
			t.Helper()
			for _, path := range []string{"list", "get", "with", "at"} {
				if res := expect(t, what, send(ctx, r, get(path)), http.StatusOK, version); res.Body.String() != strings.Repeat(version[1:], 2) {
					t.Errorf("%s: read %q", what, res.Body)
				}
			}
		}
		read("before", "v1")
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepFence))
		var moves []upgradestate.Execute
		for len(moves) == 0 { // both are announced, and then done
			for _, a := range upgradestate.Actions(w.get(ctx)) {
				if move, ok := a.(upgradestate.Execute); ok {
					moves = append(moves, move)
				} else {
					w.apply(ctx, a.(upgradestate.Event)) //nolint:forcetypeassert // a failure is one of the test
				}
			}
		}
		if len(moves) != 2 {
			t.Fatalf("%d moves at once", len(moves))
		}
		read("announced", "v1")
		w.execute(ctx, moves[0])
		between := send(ctx, r, get("get"))
		expectNone(t, "between the moves", between)
		w.execute(ctx, moves[1])
		read("both moved", "v1")
		for i, move := range moves {
			w.apply(ctx, upgradestate.Confirmed{Version: move.Version, Kind: move.Place.Kind, To: move.Pending.To, From: move.Pending.From})
			if i == 0 {
				if res := expect(t, "between the moves", between, http.StatusOK, "v1"); res.Body.String() != "11" {
					t.Errorf("read %q", res.Body)
				}
			}
			read("confirmed", "v1")
		}
		w.until(ctx, sealed)
		waits := send(ctx, r, get("get"))
		expectNone(t, "sealed", waits)
		w.until(ctx, open("v2"))
		synctest.Wait()
		read("after", "v2")
		if res := expect(t, "sealed", waits, http.StatusOK, "v2"); res.Body.String() != "22" {
			t.Errorf("read %q", res.Body)
		}
	})
}
