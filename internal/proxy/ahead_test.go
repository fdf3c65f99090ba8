package proxy

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// moreOf7 reads on with cursor 7, at most two documents at a time.
const moreOf7 = `{"getMore":{"$numberLong":"7"},"collection":"orders","batchSize":2,` + session + `}`

// batchOf7 is a reply of cursor 7, or of its end.
func batchOf7(t *testing.T, which, docs string, end bool) bsoncore.Document {
	t.Helper()
	id := 7
	if end {
		id = 0
	}
	return doc(t, fmt.Sprintf(`{"cursor":{"%s":[%s],"id":{"$numberLong":"%d"},"ns":"shop.orders"},"ok":1.0}`, which, docs, id))
}

// readAll reads cursor 7 to its end, and returns the ids of the documents, or the error of a reply.
func readAll(t *testing.T, w *world) string {
	t.Helper()
	var ids []string
	for {
		reply := w.call(0, moreOf7)
		if !succeeded(reply) {
			return strings.Join(append(ids, fmt.Sprint("error ", codeOf(reply))), " ")
		}
		docs, err := batchOf(reply)
		if err != nil || len(docs) > 2 {
			t.Fatal(json(t, reply), err)
		}
		for _, d := range docs {
			ids = append(ids, fmt.Sprint(number(d, "_id")))
		}
		if cursorOf(reply) == 0 {
			return strings.Join(ids, " ")
		}
	}
}

// TestCursorsOverASwitch: a cursor is open when a switch begins. The proxy reads it to its end before it
// acknowledges the hold, and its client gets the rest after the switch.
func TestCursorsOverASwitch(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		first   string   // command that opens the cursor; empty: a find
		batches []string // that the server has; the last one is the end
		failed  string   // reply of the server in place of the last one
		want    string
	}{
		"a query":              {batches: []string{`{"_id":2},{"_id":3},{"_id":4}`, `{"_id":5}`}, want: "2 3 4 5"},
		"nothing is left":      {batches: []string{""}, want: ""},
		"an aggregation":       {first: `{"aggregate":"orders","pipeline":[],"cursor":{},` + session + `}`, batches: []string{`{"_id":2}`}, want: "2"},
		"the fence was sooner": {batches: []string{`{"_id":2}`, ""}, failed: `{"ok":0.0,"code":175,"errmsg":"renamed"}`, want: "2 error 43"},
		"a stream":             {first: `{"aggregate":"orders","pipeline":[{"$changeStream":{}}],"cursor":{},` + session + `}`, batches: []string{`{"_id":2}`}, want: "error 286"},
		"a tailable cursor":    {first: `{"find":"orders","tailable":true,` + session + `}`, batches: []string{`{"_id":2}`}, want: "error 43"},
		"it waits for news":    {batches: []string{`{"_id":2}`, "", `{"_id":3}`}, want: "2 error 43"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			if tc.first == "" {
				tc.first = `{"find":"orders",` + session + `}`
			}
			opens := func(command) bsoncore.Document { return batchOf7(t, "firstBatch", `{"_id":1}`, false) }
			w.at["v1"].on("find", opens)
			w.at["v1"].on("aggregate", opens)
			asked := 0
			w.at["v1"].on("getMore", func(c command) bsoncore.Document {
				if c.session == "" || c.collection != "orders" || number(c.msg.Body, "getMore") != 7 {
					t.Errorf("the proxy asks by %s", json(t, c.msg.Body))
				}
				asked++
				if asked == len(tc.batches) && tc.failed != "" {
					return doc(t, tc.failed)
				}
				return batchOf7(t, "nextBatch", tc.batches[asked-1], asked == len(tc.batches))
			})
			if got := w.call(0, tc.first); cursorOf(got) != 7 {
				t.Fatal(json(t, got))
			}
			w.hold("v1", 1)
			<-w.controllers.acks // all is read
			w.at["v1"].on("getMore", func(command) bsoncore.Document {
				t.Error("it was not read to its end before the hold was acknowledged")
				return nil
			})
			w.open("v2", 2)
			w.await(w.proxies[0])
			if got := readAll(t, w); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if !w.proxies[0].ahead.TryAcquire(mostAheadOfAll) {
				t.Error("memory is still reserved")
			}
		})
	}
}

// TestCursorOfAnAttempt: a cursor was read ahead in part, and the attempt of a switch ended. Its client gets every
// document once.
func TestCursorOfAnAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	if !w.proxies[0].ahead.TryAcquire(mostAheadOfAll - batchAhead) { // enough is left for one batch at a time, and none after it
		t.Fatal("memory is reserved")
	}
	w.at["v1"].on("find", func(command) bsoncore.Document { return batchOf7(t, "firstBatch", `{"_id":1}`, false) })
	asked := 1
	w.at["v1"].on("getMore", func(command) bsoncore.Document {
		asked++
		return batchOf7(t, "nextBatch", fmt.Sprintf(`{"_id":%d}`, asked), asked == 4)
	})
	w.call(0, `{"find":"orders",`+session+`}`)
	w.hold("v1", 1)
	<-w.controllers.acks
	if asked != 2 {
		t.Errorf("%d documents were read ahead, want 1", asked-1)
	}
	w.open("v1", 1)
	w.await(w.proxies[0])
	if got := readAll(t, w); got != "2 3 4" {
		t.Errorf("got %q", got)
	}
}

// TestCursorDuringASwitch: a query whose cursor is opened while a switch holds writes is read to its end at once,
// and again at the next place if the fence is sooner.
func TestCursorDuringASwitch(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{false, true} {
		t.Run(fmt.Sprint("fenced ", fenced), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			w.hold("v1", 1)
			w.await(w.proxies[0])
			for version := range w.at {
				w.at[version].on("find", func(command) bsoncore.Document { return batchOf7(t, "firstBatch", `{"_id":1}`, false) })
			}
			w.at["v1"].on("getMore", func(command) bsoncore.Document {
				if !fenced {
					return batchOf7(t, "nextBatch", `{"_id":1}`, true)
				}
				w.open("v2", 2)
				return doc(t, `{"ok":0.0,"code":175,"errmsg":"renamed"}`)
			})
			w.at["v2"].on("getMore", func(command) bsoncore.Document { return batchOf7(t, "nextBatch", `{"_id":2}`, true) })
			if got := w.call(0, `{"find":"orders",`+session+`}`); cursorOf(got) != 7 {
				t.Fatal(json(t, got))
			}
			want := "2"
			if !fenced {
				want = "1"
				w.open("v2", 2)
				w.await(w.proxies[0])
			}
			if got := readAll(t, w); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// TestLargeBatch: a server fills a batch up to the largest document, and beyond 16,000,000 bytes.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.at["v1"].on("find", func(command) bsoncore.Document { return batchOf7(t, "firstBatch", `{"_id":1}`, false) })
	w.at["v1"].on("getMore", func(command) bsoncore.Document {
		batch := bsoncore.NewArrayBuilder()
		for id := range int32(4) {
			filling := strings.Repeat("x", 4<<20-100)
			batch.AppendDocument(bsoncore.NewDocumentBuilder().AppendInt32("_id", id+2).AppendString("filling", filling).Build())
		}
		cursor := bsoncore.NewDocumentBuilder().AppendArray("nextBatch", batch.Build()).AppendInt64("id", 0).AppendString("ns", "shop.orders").Build()
		return bsoncore.NewDocumentBuilder().AppendDocument("cursor", cursor).AppendDouble("ok", 1).Build()
	})
	w.call(0, `{"find":"orders",`+session+`}`)
	w.hold("v1", 1)
	<-w.controllers.acks
	w.open("v2", 2)
	w.await(w.proxies[0])
	if got := readAll(t, w); got != "2 3 4 5" {
		t.Errorf("got %q", got)
	}
	if !w.proxies[0].ahead.TryAcquire(mostAheadOfAll) {
		t.Error("memory is still reserved")
	}
}

// TestSlowCursor: a switch waits for the rest of a cursor for the grace only, and the reply is not lost.
func TestSlowCursor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{grace: time.Millisecond})
	w.at["v1"].on("find", func(command) bsoncore.Document { return batchOf7(t, "firstBatch", `{"_id":1}`, false) })
	goOn := make(chan struct{})
	w.at["v1"].on("getMore", func(command) bsoncore.Document {
		<-goOn
		return batchOf7(t, "nextBatch", `{"_id":2}`, true)
	})
	w.call(0, `{"find":"orders",`+session+`}`)
	w.hold("v1", 1)
	<-w.controllers.acks
	close(goOn)
	if got := readAll(t, w); got != "2" {
		t.Errorf("got %q", got)
	}
}

// TestLostBatch: the connection breaks while the proxy reads ahead. The server has moved the cursor on, so going on
// with it would leave out documents.
func TestLostBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.at["v1"].on("find", func(command) bsoncore.Document { return batchOf7(t, "firstBatch", `{"_id":1}`, false) })
	w.at["v1"].on("getMore", func(command) bsoncore.Document { return nil })
	w.call(0, `{"find":"orders",`+session+`}`)
	w.hold("v1", 1)
	<-w.controllers.acks
	w.at["v1"].on("getMore", func(command) bsoncore.Document { return batchOf7(t, "nextBatch", `{"_id":3}`, true) })
	w.open("v1", 1)
	w.await(w.proxies[0])
	if got := readAll(t, w); got != "error 43" {
		t.Errorf("got %q", got)
	}
}

// TestKilledCursor: the memory of a cursor that its client ends is free again, also while the proxy reads it.
func TestKilledCursor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	p := w.proxies[0]
	w.at["v1"].on("find", func(command) bsoncore.Document { return batchOf7(t, "firstBatch", `{"_id":1}`, false) })
	goOn := make(chan struct{})
	var asked atomic.Bool
	w.at["v1"].on("getMore", func(command) bsoncore.Document {
		asked.Store(true)
		<-goOn
		return batchOf7(t, "nextBatch", `{"_id":2}`, true)
	})
	w.call(0, `{"find":"orders",`+session+`}`)
	w.hold("v1", 1)
	w.until("the proxy reads", asked.Load)
	if got := w.call(0, `{"killCursors":"orders","cursors":[{"$numberLong":"7"}],`+session+`}`); !succeeded(got) {
		t.Fatal(json(t, got))
	}
	close(goOn)
	w.until("the memory is free", func() bool {
		return p.ahead.TryAcquire(mostAheadOfAll)
	})
}
