package vrunner_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

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
