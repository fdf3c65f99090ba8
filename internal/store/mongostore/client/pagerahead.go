package client

import (
	"context"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/store/mongostore/recordio"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// Reading a page of a list with its related records takes two finds. The second needs the names and
// the snapshot of the first. For a small page, waiting for the first is half of the time.
//
// The second find is therefore sent ahead, together with the first. This needs a habit: the last
// list of the kind showed that the related records have names under the listed ones, so they begin
// at the same place. The early result counts only if the server chose the same snapshot for both,
// as it does while nothing is written, and only as far as it reaches. The rest is read as usual.

const (
	aheadBytes = 12 << 20 // a larger reply may have ended for lack of room
	aheadMost  = 20_000   // documents
	aheadSkips = 64       // lists at most without sending ahead, after failures
)

// habits remembers which related records came with the last list of each kind.
type habits struct {
	mu sync.Mutex
	of map[string]habit
}

type habit struct {
	kind  string  // kind of the related records
	each  float64 // related records for each listed one
	vain  int     // lists to skip after the next failure
	skips int     // lists to skip now
}

// expect returns the habit of a list's kind, if sending ahead is worth it.
func (h *habits) expect(list record.ListRequest) (habit, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of, ok := h.of[list.Token.Kind]
	if ok && of.skips > 0 {
		of.skips--
		h.of[list.Token.Kind] = of
		return habit{}, false
	}
	return of, ok
}

// habitOf returns the kind of the related records if there is only one, and all of them begin at
// the place of the list. Otherwise it is empty.
func habitOf(list record.ListRequest, kinds []string, byKind map[string]*recordio.Selection) string {
	if len(kinds) != 1 {
		return ""
	}
	if s := byKind[kinds[0]]; len(s.Keys) > 0 || len(s.Prefixes) == 0 || s.Prefixes[0] < behind(list) {
		return ""
	}
	return kinds[0]
}

// learn notes the related records of a list.
func (h *habits) learn(list record.ListRequest, came string, listed, with int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if listed == 0 {
		return // an empty list shows nothing
	}
	if came == "" {
		delete(h.of, list.Token.Kind)
		return
	}
	if h.of == nil {
		h.of = map[string]habit{}
	}
	of := h.of[list.Token.Kind]
	// Decay slowly, since one small list makes no new habit.
	of.kind, of.each = came, max(float64(with)/float64(listed), of.each*0.9)
	h.of[list.Token.Kind] = of
}

// sent notes whether the early result was used.
func (h *habits) sent(list record.ListRequest, used bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of, ok := h.of[list.Token.Kind]
	if !ok {
		return
	}
	if used {
		of.vain = 0
	} else {
		// Wait longer after each failure: with constant writes, sending ahead only costs.
		of.vain = min(2*of.vain+1, aheadSkips)
		of.skips = of.vain
	}
	h.of[list.Token.Kind] = of
}

// behind returns where the names of a list, and the names under them, begin.
func behind(list record.ListRequest) string { return max(list.Prefix, list.After) }

// ahead is an early result: all documents with names from from up to, but not including, end. An
// empty end means the end of all strings.
type ahead struct {
	kind      string
	from, end string
	recs      []record.Record
	at        bson.Timestamp
}

// sendAhead starts the early find of a list. early waits for the result and returns it once; nil
// means none. end stops the find and waits for its goroutine.
func (c *Client) sendAhead(ctx context.Context, toks record.Tokens, list record.ListRequest) (early func() *ahead, end func()) {
	of, ok := c.habits.expect(list)
	tok := toks[of.kind]
	if !ok || c.check(tok) != nil {
		return func() *ahead { return nil }, func() {}
	}
	tok.Kind = of.kind
	// The list may fail or return first, and must then stop the find.
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan *ahead, 1)
	go func() {
		defer close(done)
		done <- c.ns.findAhead(ctx, tok, list, of.each)
	}()
	return func() *ahead { return <-done }, func() {
		cancel()
		for range done { // until the goroutine has ended
		}
	}
}

func (n part) findAhead(ctx context.Context, tok record.Token, list record.ListRequest, each float64) *ahead {
	p, err := wire.PlaceOf(tok)
	if err != nil {
		return nil
	}
	a := &ahead{kind: tok.Kind, from: behind(list), end: recordio.Successor(list.Prefix)}
	const spare = 20 // for the records under the name that the list starts after, for example
	limit := min(int(1.1*each*float64(limitOf(list)))+spare, aheadMost)
	// Not in the list's session, which runs another command at the same time.
	o := recordio.ReadOptions{Snapshot: true}
	b := wire.AppendCommand(nil, "find", p)
	b, start := wire.BeginElement(b, bson.TypeEmbeddedDocument, "filter")
	b = wire.EndDocument(recordio.AppendNames(b, a.from, a.end), start)
	b, start = wire.BeginElement(b, bson.TypeEmbeddedDocument, "sort")
	b = wire.EndDocument(bsoncore.AppendInt32Element(b, "_id", 1), start)
	b = bsoncore.AppendInt32Element(b, "limit", int32(limit))
	b = bsoncore.AppendInt32Element(b, "batchSize", int32(limit))
	b = bsoncore.AppendBooleanElement(b, "singleBatch", true)
	rs := wire.RecordSet{Kind: tok.Kind}
	found, bytes := 0, 0
	// Count tombstones too, because they use up the limit.
	a.at, err = n.Find(ctx, p, wire.EndDocument(o.Append(b), 0), o, func(doc []byte) error {
		found, bytes = found+1, bytes+len(doc)
		return rs.Add(doc)
	})
	if err != nil {
		return nil // the list does without it, and meets a lasting error itself
	}
	if found == limit || bytes > aheadBytes {
		// The reply is incomplete, so it covers only the names before its last one.
		a.end, _ = rs.Last.StringValueOK()
	}
	a.recs = rs.Records()
	return a
}

// take removes the early result from a selection, and returns its records.
func (a *ahead) take(s *recordio.Selection, at bson.Timestamp) []record.Record {
	if a == nil || !a.at.Equal(at) {
		return nil
	}
	var whole recordio.Selection
	s.Prefixes = slices.DeleteFunc(s.Prefixes, func(p string) bool {
		end := recordio.Successor(p)
		// Use only prefixes that lie completely within the range that was read.
		has := p >= a.from && (a.end == "" || end != "" && end <= a.end)
		if has {
			whole.Prefixes = append(whole.Prefixes, p)
		}
		return has
	})
	return slices.DeleteFunc(a.recs, func(r record.Record) bool {
		name, ok := r.Key.Name()
		return !ok || !whole.Covers(name)
	})
}

// limitOf returns how many records a list asks for.
func limitOf(list record.ListRequest) int {
	if list.Limit <= 0 {
		return defaultListLimit
	}
	return list.Limit
}
