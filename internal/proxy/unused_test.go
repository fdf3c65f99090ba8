package proxy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// age makes cursors look as if nobody had used them for some time.
func (c *cursors) age(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, one := range c.open {
		one.used = one.used.Add(-by)
		c.open[id] = one
	}
}

func (c *cursors) known() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// TestDeadCursors: a server has ended a cursor before its client came to the end. The proxy notices it when a switch
// holds writes, and does not ask for it at each further switch. A query by _id goes on at the next place.
func TestDeadCursors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sort string
		kept int
		want string
	}{
		"any order": {want: "error 43"},
		"by _id":    {sort: `"sort":{"_id":1},`, kept: 1, want: "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{grace: time.Hour}) // the proxy asks for all before it acknowledges
			w.at["v1"].on("find", func(command) bsoncore.Document { return batchOf7(t, "firstBatch", `{"_id":1}`, false) })
			w.at["v1"].on("getMore", func(command) bsoncore.Document { return doc(t, `{"ok":0.0,"code":43,"errmsg":"gone"}`) })
			w.at["v2"].on("find", func(c command) bsoncore.Document {
				id := 2
				if number(c.msg.Body, "limit") == 1 { // it looks for the last document
					id = 1
				}
				return doc(t, fmt.Sprintf(`{"cursor":{"firstBatch":[{"_id":%d}],"id":{"$numberLong":"0"},"ns":"shop.orders"},"ok":1.0}`, id))
			})
			w.call(0, `{"find":"orders",`+tc.sort+session+`}`)
			for range 2 {
				w.hold("v1", 1)
				<-w.controllers.acks
				w.open("v1", 1)
				w.await(w.proxies[0])
			}
			if n := len(w.at["v1"].calls("getMore")); n != 1 {
				t.Errorf("the proxy asked %d times", n)
			}
			if n := w.proxies[0].cursors.known(); n != tc.kept {
				t.Errorf("the proxy knows %d cursors, want %d", n, tc.kept)
			}
			w.open("v2", 2)
			w.await(w.proxies[0])
			if got := readAll(t, w); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestOrderOfRests: the cursor that was used last is read first, and those that servers have ended by now, because
// nobody used them, are not read.
func TestOrderOfRests(t *testing.T) {
	t.Parallel()
	var c cursors
	d := &deployed{}
	for i := range 20 {
		id := int64(i*7%20 + 1)
		c.keep(id, cursor{moves: d, epoch: 1, rest: &rest{}})
		one := c.open[owned{nil, id}]
		one.used = one.used.Add(-time.Duration(id) * time.Minute)
		c.open[owned{nil, id}] = one
	}
	var got []int64
	for _, r := range c.rests(d, 1) {
		got = append(got, r.id.id)
	}
	if want := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestKeptWhileRead: what was read ahead stays while a client reads it, however long that takes, and goes when it
// stops. A client that reads at the server again has no such limit.
func TestKeptWhileRead(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		batches, takes int
		unused         time.Duration // since the last one
		end, gone      bool
	}{
		"its client reads":               {batches: 3, takes: 1, end: true},
		"its client has stopped":         {batches: 3, takes: 1, end: true, unused: keptAhead, gone: true},
		"its client never came":          {batches: 3, end: true, unused: keptAhead, gone: true},
		"its client reads at the server": {batches: 3, takes: 3, unused: keptAhead},
	} {
		r := &rest{release: func(int64) {}}
		for i := range tc.batches {
			r.add([]bsoncore.Document{doc(t, `{"_id":1}`)}, 100, tc.end && i == tc.batches-1)
		}
		r.taken = r.taken.Add(-2 * keptAhead)
		for range tc.takes {
			r.take(0)
		}
		if tc.takes > 0 {
			r.taken = r.taken.Add(-tc.unused)
		}
		r.expire()
		if r.broken() != tc.gone {
			t.Errorf("%s: it was dropped: %v", name, r.broken())
		}
		r.discard()
	}
	r := &rest{release: func(int64) {}}
	for range 2 { // of two attempts of a switch
		r.taken = r.taken.Add(-keptAhead)
		r.add([]bsoncore.Document{doc(t, `{"_id":1}`)}, 100, false)
	}
	r.expire()
	if r.broken() {
		t.Error("what a second attempt read was dropped at once")
	}
	r.discard()
}

// TestBusyFromMemory: a proxy that ends waits for a client that reads what was read ahead.
func TestBusyFromMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{grace: time.Hour})
	w.at["v1"].on("find", func(command) bsoncore.Document { return batchOf7(t, "firstBatch", `{"_id":1}`, false) })
	w.at["v1"].on("getMore", func(command) bsoncore.Document {
		return batchOf7(t, "nextBatch", `{"_id":2},{"_id":3},{"_id":4}`, true)
	})
	w.call(0, `{"find":"orders",`+session+`}`)
	w.hold("v1", 1)
	<-w.controllers.acks
	const longAgo = time.Hour
	open := &w.proxies[0].cursors
	open.age(longAgo)
	if open.busy() {
		t.Fatal("it is busy with an unused cursor")
	}
	w.call(0, moreOf7)
	open.mu.Lock()
	used := open.open[owned{nil, 7}].used
	open.mu.Unlock()
	if time.Since(used) > longAgo/2 {
		t.Error("the cursor counts as unused, though its client reads")
	}
	w.call(0, moreOf7)
	if n := open.known(); n != 0 {
		t.Errorf("%d cursors are known after the end", n)
	}
}

// TestStreamWhileTheDataMoves: a change stream waits for news at the former place, and gets the writes of the reverse
// sync. Its client gets none of them.
func TestStreamWhileTheDataMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{class: "validator"})
	w.at["v1"].on("aggregate", func(command) bsoncore.Document { return batchOf7(t, "firstBatch", ``, false) })
	w.at["v1"].on("getMore", func(command) bsoncore.Document {
		w.open("v2", 2)
		w.await(w.proxies[0])
		return batchOf7(t, "nextBatch", `{"_id":{"_data":"x"},"operationType":"update"}`, false)
	})
	w.call(0, `{"aggregate":"orders","pipeline":[{"$changeStream":{}}],"cursor":{},`+session+`}`)
	wants(t, w.call(0, moreOf7), codeStreamHistoryLost)
}
