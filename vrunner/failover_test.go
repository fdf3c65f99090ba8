package vrunner_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// TestChangesOverARestart: the database is killed and comes back, and a subscriber misses
// nothing of what was written before, while nobody could be notified, and after.
func TestChangesOverARestart(t *testing.T) {
	t.Parallel()
	server, err := localmongo.Start(t.Context(), localmongo.Options{Own: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	ns, err := mongostore.Open(t.Context(), mongostore.Config{URI: server.URI(), Database: "app", Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close(context.Background()) })
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	w := newWorldOn(ctx, t, map[string]database{"v2": memstore.New(), "v1": struct {
		*mongostore.Namespace
		*mongostore.Client
	}{ns, ns.Client()}}, plain)
	var view *vrunner.View
	r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), func(version string, vs map[string]*vrunner.View) vrunner.Stack {
		view = vs["v1"]
		return (&service{}).stack(version, vs)
	}, vrunner.Config{ID: "server"}, nil)
	running, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(running) }() // ends with its context
	defer func() { end(); <-ended }()
	eventually(t, "ready", func() bool { return r.Ready() == nil })

	c := subscribe(ctx, t, view, "old")
	defer c.Close()
	seen := map[string]bool{}
	sees := func(names ...string) {
		t.Helper()
		for _, name := range names {
			for !seen[name] {
				dirty, err := c.Next(ctx)
				if err != nil {
					t.Fatalf("waiting for %s: %v", name, err)
				}
				for _, d := range dirty {
					seen[d.Name] = true
				}
			}
		}
	}
	w.put(ctx, "v1", "old", "before", "1")
	sees("before")
	toks := w.tokens(ctx, "v1")
	for round := range 2 {
		unseen, after := fmt.Sprint("unseen", round), fmt.Sprint("after", round)
		w.put(ctx, "v1", "old", unseen, "1")
		server.Nodes()[0].Kill()
		written := make(chan error, 1)
		go func() { // waits until there is a server again, as a client does
			m := record.Mutation{Kind: "old", Key: record.StringKey(after), Doc: doc(after, "1")}
			err := w.db["v1"].Write(ctx, toks, []record.Mutation{m})
			for err != nil && !errors.Is(err, record.ErrFenced) && ctx.Err() == nil {
				err = w.db["v1"].Write(ctx, toks, []record.Mutation{m})
			}
			written <- err
		}()
		if err := server.Nodes()[0].Start(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		sees(unseen, after)
	}
	late := subscribe(ctx, t, view, "old")
	late.Close()
}
