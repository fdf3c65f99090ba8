package recordio_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// cursors counts what a client leaves open.
type cursors struct {
	mu     sync.Mutex
	open   map[int64]bool
	opened int
	closed int    // connections
	more   func() // called before each getMore
}

func (c *cursors) started(_ context.Context, e *event.CommandStartedEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.CommandName == "killCursors":
		id, _ := e.Command.Lookup("cursors", "0").AsInt64OK()
		delete(c.open, id)
	case e.CommandName == "getMore" && c.more != nil:
		c.more()
	}
}

func (c *cursors) succeeded(_ context.Context, e *event.CommandSucceededEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, ok := e.Reply.Lookup("cursor", "id").AsInt64OK(); ok && e.CommandName == "find" && id != 0 {
		c.open[id] = true
		c.opened++
	}
}

func (c *cursors) pool(e *event.PoolEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Type == event.ConnectionClosed {
		c.closed++
	}
}

// TestReadsLeaveNoCursors: a read beyond its bound, and one that its caller cancels, close all their
// cursors. The first also keeps its connections.
func TestReadsLeaveNoCursors(t *testing.T) {
	t.Parallel()
	uri, name := mongotest.Database(t)
	c := &cursors{open: map[int64]bool{}}
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetPoolMonitor(&event.PoolMonitor{Event: c.pool}).
		SetMonitor(&event.CommandMonitor{Started: c.started, Succeeded: c.succeeded}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
	e := &storetest.Engine{T: t, NS: storetest.NewNamespace(client, name, "test", zaptest.NewLogger(t))}
	req := record.ReadRequest{Tokens: record.Tokens{}, Bytes: 1 << 10}
	// The first find chooses the time. The others return more than one batch has.
	for k, docs := range []int{1, 10_001, 10_001, 10_001} {
		kind := fmt.Sprintf("k%d", k)
		tok := e.Collection(kind, kind, true)
		req.Tokens[kind] = tok
		req.Select = append(req.Select, record.Selector{Kind: kind, Key: record.StringKey("a"), Prefix: true})
		list := make([]any, docs)
		for i := range list {
			list[i] = bson.D{{Key: "_id", Value: fmt.Sprintf("a%05d", i)}}
		}
		e.Insert(tok, list...)
	}
	check := func(what string) {
		t.Helper()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.opened == 0 || len(c.open) > 0 {
			t.Errorf("%s left %d of %d cursors open", what, len(c.open), c.opened)
		}
	}
	for range 5 {
		if _, err := e.NS.Read(t.Context(), req); !errors.Is(err, record.ErrTooLarge) {
			t.Fatalf("%v, want ErrTooLarge", err)
		}
	}
	check("a read beyond its bound")
	c.mu.Lock()
	if c.closed > 0 {
		t.Errorf("%d connections were closed", c.closed)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.opened, c.more = 0, cancel
	c.mu.Unlock()
	// One after the other: a find that is cancelled has shown no cursor yet.
	req.Bytes, req.Select = 0, req.Select[:2]
	if _, err := e.NS.Read(ctx, req); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want context.Canceled", err)
	}
	check("a cancelled read")
}
