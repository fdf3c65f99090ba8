package vrunner_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// nothing is an index that finds nothing.
type nothing struct{}

func (nothing) Searched(string, string) bool { return true }

func (nothing) Search(context.Context, record.SearchRequest, time.Time) (record.SearchPage, error) {
	return record.SearchPage{Done: true}, nil
}

// TestEmptySearchOfADeafServer: a server that missed a flip does not answer from the index of the
// former version, although a search without results reads no record.
func TestEmptySearchOfADeafServer(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		clients := w.clients()
		for version, c := range clients {
			c.Search = nothing{}
			clients[version] = c
		}
		stack := func(version string, views map[string]*vrunner.View) vrunner.Stack {
			return vrunner.Stack{Write: func(*http.Request) bool { return false }, Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
				out.Header().Set("Version", version)
				page, err := views[version].Search(r.Context(), record.SearchRequest{Kind: kindOf[version]})
				if err != nil {
					answer(out, err)
					return
				}
				_, _ = fmt.Fprint(out, len(page.Names)) // the recorder takes everything
			})}
		}
		r, _ := start(ctx, deaf{consumer{w.store, &announced{}}}, clients, stack, vrunner.Config{}, nil)
		expect(t, "before", send(ctx, r, get("x")), http.StatusOK, "v1")
		w.begin(ctx)
		w.until(ctx, open("v2"))
		expect(t, "after the flip", send(ctx, r, get("x")), http.StatusOK, "v2")
	})
}
