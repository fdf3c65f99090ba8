package vrunner_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

const watchPath = "/test.Service/Watch"

var watchedText = vrunner.WatchProcedure[text]{Event: event, Deleted: deleted}

// backends are worlds on each database.
var backends = map[string]func(t *testing.T) *world{
	"memory": func(t *testing.T) *world { return newWorld(t.Context(), t, plain) },
	"MongoDB": func(t *testing.T) *world {
		db := map[string]database{}
		for version := range plain {
			uri, name := mongotest.Database(t)
			ns, err := mongostore.Open(t.Context(), mongostore.Config{URI: uri, Database: name, Log: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = ns.Close(context.Background()) })
			db[version] = struct {
				*mongostore.Namespace
				*mongostore.Client
			}{ns, ns.Client()}
		}
		return newWorldOn(t.Context(), t, db, plain)
	},
}

// TestWatchOverTheFlip: clients of every protocol keep one stream over a switch and see
// what differs, no more.
func TestWatchOverTheFlip(t *testing.T) {
	t.Parallel()
	for backend, make := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			ctx, w := t.Context(), make(t)
			for _, name := range []string{"a", "b", "c"} {
				w.put(ctx, "v1", "old", name, "1")
			}
			w.put(ctx, "v2", "new", "a", "1")
			w.put(ctx, "v2", "new", "b", "of v2")
			w.put(ctx, "v2", "new", "d", "of v2")
			_, clients := watchServer(t, w, w.clients(), watchedText)
			all := map[string]*follower{}
			for name, c := range clients {
				f := follow(t, c, "")
				all[name] = f
				f.expect("PUT a 1", "PUT b 1", "PUT c 1", "LEVEL")
				if h := f.stream.ResponseHeader(); h.Get("Version") != "v1" || h.Get("Caller") != "test" {
					t.Errorf("%s: headers %v", name, h)
				}
			}
			each := func(want ...string) {
				t.Helper()
				for _, f := range all {
					f.expect(want...)
				}
			}
			w.put(ctx, "v1", "old", "e", "2")
			each("PUT e 2")
			w.remove(ctx, "v1", "old", "e")
			each("DELETE e")
			w.begin(ctx)
			w.until(ctx, at(upgradestate.StepHold))
			w.put(ctx, "v1", "old", "a", "late") // one that was in flight
			w.put(ctx, "v2", "new", "a", "late")
			each("PUT a late")
			w.until(ctx, open("v2"))
			each("PUT b of v2", "PUT d of v2", "DELETE c")
			w.put(ctx, "v2", "new", "d", "3")
			each("PUT d 3")
			w.remove(ctx, "v2", "new", "a")
			each("DELETE a")
		})
	}
}

// TestWatchUnderTraffic: whatever a stream has delivered when the flip comes, each client
// ends with what is there, gets no message twice and no deletion of what it never had.
func TestWatchUnderTraffic(t *testing.T) {
	t.Parallel()
	for backend, make := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			ctx, w, want := t.Context(), make(t), map[string]string{}
			_, clients := watchServer(t, w, w.clients(), watchedText)
			write := func(i int, versions ...string) {
				name, value := fmt.Sprintf("n%d", i*i%31), fmt.Sprint(i)
				for _, v := range versions {
					if i%4 == 3 {
						w.remove(ctx, v, kindOf[v], name)
					} else {
						w.put(ctx, v, kindOf[v], name, value)
					}
				}
				delete(want, name)
				if i%4 != 3 {
					want[name] = value
				}
			}
			var followers []*follower
			n := 0
			for range 40 {
				write(n, "v1", "v2") // the second is the sync's
				n++
			}
			for _, c := range clients {
				followers = append(followers, follow(t, c, ""))
				for range 20 {
					write(n, "v1", "v2")
					n++
				}
			}
			w.begin(ctx)
			for range 20 {
				write(n, "v1", "v2")
				n++
			}
			w.until(ctx, open("v2"))
			for range 60 {
				write(n, "v2")
				n++
			}
			for _, f := range followers {
				f.becomes(want)
			}
		})
	}
}

// TestWatchOfAPrefix: a request's own selection is kept over the flip.
func TestWatchOfAPrefix(t *testing.T) {
	t.Parallel()
	ctx, w := t.Context(), newWorld(t.Context(), t, plain)
	w.put(ctx, "v1", "old", "p1", "1")
	w.put(ctx, "v1", "old", "q1", "1")
	w.put(ctx, "v2", "new", "p2", "1")
	w.put(ctx, "v2", "new", "q2", "1")
	_, clients := watchServer(t, w, w.clients(), watchedText)
	f := follow(t, clients["grpc"], "p")
	f.expect("PUT p1 1", "LEVEL")
	w.begin(ctx)
	w.until(ctx, open("v2"))
	f.expect("PUT p2 1", "DELETE p1")
}

// TestWatchCannotGoOn: streams that cannot tell what differs end at the flip with an error.
func TestWatchCannotGoOn(t *testing.T) {
	t.Parallel()
	for label, tc := range map[string]struct {
		p        vrunner.WatchProcedure[text]
		versions []string
		last     string // record
		want     string
	}{
		"too many records": {vrunner.WatchProcedure[text]{Event: event, Deleted: deleted, MaxNames: 2}, []string{"v1", "v2"}, "d", "too many records"},
		"too long names":   {vrunner.WatchProcedure[text]{Event: event, Deleted: deleted, MaxNames: 4}, []string{"v1", "v2"}, strings.Repeat("d", 2000), "too many records"},
		"no events":        {vrunner.WatchProcedure[text]{}, []string{"v1", "v2"}, "d", "cannot go on after a switch"},
		"unknown version":  {watchedText, []string{"v1"}, "d", "the database is at version v2, this binary knows only v1: use one that knows v2"},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			ctx, w := t.Context(), newWorld(t.Context(), t, plain)
			for _, name := range []string{"a", "b", "c"} {
				w.put(ctx, "v1", "old", name, "1")
			}
			databases := map[string]vrunner.Database{}
			for _, v := range tc.versions {
				databases[v] = w.clients()[v]
			}
			_, clients := watchServer(t, w, databases, tc.p)
			var all []*follower
			for _, c := range clients {
				f := follow(t, c, "")
				f.expect("PUT a 1", "PUT b 1", "PUT c 1", "LEVEL")
				all = append(all, f)
			}
			w.put(ctx, "v1", "old", tc.last, "1")
			for _, f := range all {
				f.expect("PUT " + tc.last + " 1")
			}
			w.begin(ctx)
			w.until(ctx, open("v2"))
			for _, f := range all {
				f.ends(connect.CodeUnavailable, tc.want)
			}
		})
	}
}

// TestWatchErrors: what a handler ends with, the client gets.
func TestWatchErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t.Context(), t, plain)
	_, clients := watchServer(t, w, w.clients(), watchedText)
	for name, c := range clients {
		t.Run(name, func(t *testing.T) {
			follow(t, c, "refuse").ends(connect.CodePermissionDenied, "refused")
			follow(t, c, "bad").ends(connect.CodeInternal, "bad event")
		})
	}
}

// TestWatchLeaves: when its client goes, the handler ends and with it the change stream.
func TestWatchLeaves(t *testing.T) {
	t.Parallel()
	ctx, w := t.Context(), newWorld(t.Context(), t, plain)
	counter := &watched{Watcher: w.db["v1"]}
	_, clients := watchServer(t, w, map[string]vrunner.Database{"v1": {Client: w.db["v1"], Watcher: counter}, "v2": w.clients()["v2"]}, watchedText)
	w.put(ctx, "v1", "old", "a", "1")
	for _, c := range clients {
		f := follow(t, c, "")
		f.expect("PUT a 1", "LEVEL")
		defer f.close()
	}
	if n := counter.open.Load(); n != 1 {
		t.Errorf("%d change streams are open for %d clients", n, len(clients))
	}
	for _, c := range clients {
		f := follow(t, c, "")
		f.expect("PUT a 1", "LEVEL")
		f.close()
	}
}

// TestWatchAfterALoss: the client of a handler that lost changes sees what differs.
func TestWatchAfterALoss(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), memstore.New()
	w := newWorldOn(ctx, t, map[string]database{"v1": db, "v2": memstore.New()}, plain)
	for _, name := range []string{"a", "b", "c"} {
		w.put(ctx, "v1", "old", name, "1")
	}
	gated := &gatedWatcher{Watcher: db, pass: make(chan struct{}, 1)}
	_, clients := watchServer(t, w, map[string]vrunner.Database{"v1": {Client: db, Watcher: gated}}, watchedText)
	f := follow(t, clients["connect"], "")
	f.expect("PUT a 1", "PUT b 1", "PUT c 1", "LEVEL")
	w.put(ctx, "v1", "old", "b", "2")
	w.remove(ctx, "v1", "old", "a")
	w.put(ctx, "v1", "old", "d", "1")
	db.Cluster().LoseHistory()
	close(gated.pass)
	f.expect("PUT b 2", "PUT d 1", "DELETE a")
	w.put(ctx, "v1", "old", "d", "2")
	f.expect("PUT d 2")
}

// gatedWatcher has streams that deliver nothing until pass is closed.
type gatedWatcher struct {
	record.Watcher
	pass chan struct{}
}

func (g *gatedWatcher) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	s, err := g.Watcher.Watch(ctx, from, kinds)
	return gatedStream{s, g}, err
}

type gatedStream struct {
	record.Stream
	g *gatedWatcher
}

func (s gatedStream) Next(ctx context.Context) (record.ChangeBatch, error) {
	select {
	case <-s.g.pass:
	case <-ctx.Done():
		return record.ChangeBatch{}, ctx.Err()
	}
	return s.Stream.Next(ctx)
}
