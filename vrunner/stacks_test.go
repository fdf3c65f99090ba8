package vrunner_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// TestStacksOfPlaces: each place of a version has a stack of that version over its own
// namespace. Of other versions it sees one place.
func TestStacksOfPlaces(t *testing.T) {
	t.Parallel()
	type built struct {
		version string
		views   map[string]*vrunner.View
	}
	var stacks []built
	r := vrunner.New(nil, map[string]vrunner.Database{"v1": {}, "v1@b": {}, "v2@c": {}, "v2@d": {}},
		func(version string, views map[string]*vrunner.View) vrunner.Stack {
			stacks = append(stacks, built{version, views})
			return vrunner.Stack{}
		}, vrunner.Config{}, nil)
	if got := r.State().Versions; !slices.Equal(got, []string{"v1", "v1@b", "v2@c", "v2@d"}) {
		t.Errorf("the server reports that it serves %v", got)
	}
	own := map[string]map[*vrunner.View]int{"v1": {}, "v2": {}}
	foreign := map[string]map[*vrunner.View]int{"v1": {}, "v2": {}}
	for _, s := range stacks {
		if len(s.views) != 2 || s.views["v1"] == nil || s.views["v2"] == nil {
			t.Fatalf("the stack of %s has the views %v", s.version, s.views)
		}
		other := map[string]string{"v1": "v2", "v2": "v1"}[s.version]
		own[s.version][s.views[s.version]]++
		foreign[other][s.views[other]]++
	}
	for _, version := range []string{"v1", "v2"} {
		if len(own[version]) != 2 || len(foreign[version]) != 1 {
			t.Errorf("%s: %d namespaces have a stack of their own, others see %d", version, len(own[version]), len(foreign[version]))
		}
	}
}

// TestUndeclaredKind: a read or write of a kind that the deployment does not have fails at once and
// says why. It is not held like a kind that a switch has sealed.
func TestUndeclaredKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		kinds := map[string][]record.KindSpec{"v1": {{Name: "a"}}, "v2": {{Name: "a"}}}
		w := newWorld(ctx, t, kinds)
		stack := func(version string, views map[string]*vrunner.View) vrunner.Stack {
			return vrunner.Stack{Write: func(r *http.Request) bool { return r.Method == http.MethodPost }, Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
				var err error
				if r.Method == http.MethodPost {
					err = views[version].Write(r.Context(), []record.Mutation{{Kind: "none", Key: record.StringKey("x"), Doc: doc("x", "1")}})
				} else {
					_, err = views[version].Get(r.Context(), "none", "x")
				}
				answer(out, err)
			})}
		}
		r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), stack, vrunner.Config{ID: "server"}, nil)
		go func() { _ = r.Run(ctx) }() // ends with ctx
		synctest.Wait()
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			began := time.Now()
			got := <-send(ctx, r, httptest.NewRequest(method, "/x", nil))
			if text := got.Body.String(); !strings.Contains(text, "v1 has no kind none: name it in a transformer") || time.Since(began) > 0 {
				t.Errorf("%s answers %d %s after %v", method, got.Code, text, time.Since(began))
			}
		}
	})
}
