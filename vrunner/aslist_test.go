package vrunner_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// readsNoted is a client that notes what kind of reads it is asked for.
type readsNoted struct {
	record.Client
	mu    sync.Mutex
	reads []string
}

func (n *readsNoted) note(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads = append(n.reads, what)
}

// taken are the reads so far, which are forgotten.
func (n *readsNoted) taken() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	slices.Sort(n.reads)
	reads := strings.Join(slices.Compact(n.reads), ", ")
	n.reads = nil
	return reads
}

func (n *readsNoted) Get(ctx context.Context, tok record.Token, key record.Key) (record.Record, error) {
	n.note("linearizable")
	return n.Client.Get(ctx, tok, key)
}

func (n *readsNoted) Select(ctx context.Context, req record.SelectRequest) ([]record.Record, error) {
	if req.AsList {
		n.note("as a list")
	} else {
		n.note("linearizable")
	}
	return n.Client.Select(ctx, req)
}

// TestReadsAsList: where its owner has said so a request that only reads is as recent as a list. One
// that writes, a stream and a controller read linearizably all the same, and so does everybody
// by default.
func TestReadsAsList(t *testing.T) {
	t.Parallel()
	for _, asList := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer func() { cancel(); synctest.Wait() }()
			w := newWorld(ctx, t, plain)
			w.put(ctx, "v1", "old", "x", "1")
			client := &readsNoted{Client: w.db["v1"]}
			read := func(ctx context.Context, view *vrunner.View) error {
				if _, err := view.Get(ctx, "old", "none"); !errors.Is(err, record.ErrNotFound) {
					t.Errorf("what is not there: %v", err)
				}
				rec, err := view.Get(ctx, "old", "x")
				if err == nil && (rec.Kind != "old" || rec.Key != record.StringKey("x") || rec.Doc.Lookup("value").StringValue() != "1") {
					t.Errorf("read %+v", rec)
				}
				if err == nil {
					_, err = view.Select(ctx, []record.Selector{{Kind: "old", Key: record.StringKey("x")}}, false)
				}
				return err
			}
			stack := func(version string, views map[string]*vrunner.View) vrunner.Stack {
				if version != "v1" {
					return vrunner.Stack{}
				}
				return vrunner.Stack{
					Write:  func(r *http.Request) bool { return r.URL.Path == "/write" },
					Stream: func(r *http.Request) bool { return r.URL.Path == "/stream" },
					Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
						out.Header().Set("Version", version)
						if err := read(r.Context(), views["v1"]); err != nil {
							answer(out, err)
						}
					}),
					Controllers: []vrunner.Controller{{Name: "c", Run: func(ctx context.Context) error {
						err := read(ctx, views["v1"])
						<-ctx.Done()
						return err
					}}},
				}
			}
			databases := map[string]vrunner.Database{"v1": {Client: client, ReadsAsList: asList}, "v2": {Client: w.db["v2"]}}
			r := vrunner.New(consumer{w.store, &announced{}}, databases, stack, vrunner.Config{ID: "server"}, nil)
			go func() { _ = r.Run(ctx) }() // ends with ctx
			synctest.Wait()
			if reads := client.taken(); reads != "linearizable" {
				t.Errorf("%v: a controller reads %s", asList, reads)
			}
			for path, want := range map[string]string{"read": "as a list", "write": "linearizable", "stream": "linearizable"} {
				if !asList {
					want = "linearizable"
				}
				expect(t, path, send(ctx, r, get(path)), http.StatusOK, "v1")
				if reads := client.taken(); reads != want {
					t.Errorf("%v: /%s reads %s, want %s", asList, path, reads, want)
				}
			}
		})
	}
}
