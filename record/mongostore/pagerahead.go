package mongostore

import (
	"context"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/record"
)

// A page of a list and what belongs to it take two finds, of which the second needs the first:
// the names, and the snapshot. For a small page the wait for it is as long as all the rest. So the
// second is sent ahead, together with the first, where the last list of the kind has shown that
// what belongs to it are names under those listed, which are then behind the same place. It
// counts where the server has chosen the same snapshot for both, as it does while nothing is
// written, and as far as it goes; the rest is read as ever.

const (
	aheadBytes = 12 << 20 // a reply of more may have ended for want of room
	aheadMost  = 20_000   // documents
	aheadSkips = 64       // lists at most that send nothing ahead after those where it was in vain
)

// habits are what came with the last list of each kind.
type habits struct {
	mu sync.Mutex
	of map[string]habit
}

type habit struct {
	kind  string  // of what came with it
	each  float64 // how many for each that was listed
	vain  int     // lists to skip after the next failure
	skips int     // lists to skip now
}

// expect returns what is worth to be sent ahead with a list.
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

// habitOf is the kind that comes with a list, if it is one alone, of which all is behind the
// place of the list; empty otherwise.
func habitOf(list record.ListRequest, kinds []string, byKind map[string]*selection) string {
	if len(kinds) != 1 {
		return ""
	}
	if s := byKind[kinds[0]]; len(s.keys) > 0 || len(s.prefixes) == 0 || s.prefixes[0] < behind(list) {
		return ""
	}
	return kinds[0]
}

// learn notes what came with a list.
func (h *habits) learn(list record.ListRequest, came string, listed, with int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if listed == 0 {
		return // it shows nothing
	}
	if came == "" {
		delete(h.of, list.Token.Kind)
		return
	}
	if h.of == nil {
		h.of = map[string]habit{}
	}
	of := h.of[list.Token.Kind]
	of.kind, of.each = came, max(float64(with)/float64(listed), of.each*0.9)
	h.of[list.Token.Kind] = of
}

// sent notes whether it was worth it.
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
		of.vain = min(2*of.vain+1, aheadSkips)
		of.skips = of.vain
	}
	h.of[list.Token.Kind] = of
}

// behind is where the names of a list, and those under them, begin.
func behind(list record.ListRequest) string { return max(list.Prefix, list.After) }

// ahead is what was read before it was known what is wanted: all documents from a name up to, and
// without, end; empty for the end of all strings.
type ahead struct {
	kind      string
	from, end string
	recs      []record.Record
	at        bson.Timestamp
}

// sendAhead begins to read what is expected to come with a list. early waits for it, and returns
// it once; nil means that there is nothing. end ends it.
func (c *Client) sendAhead(ctx context.Context, toks record.Tokens, list record.ListRequest) (early func() *ahead, end func()) {
	of, ok := c.habits.expect(list)
	tok := toks[of.kind]
	if !ok || c.check(tok) != nil {
		return func() *ahead { return nil }, func() {}
	}
	tok.Kind = of.kind
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan *ahead, 1)
	go func() {
		defer close(done)
		done <- c.ns.findAhead(ctx, tok, list, of.each)
	}()
	return func() *ahead { return <-done }, func() {
		cancel()
		for range done { // until it has ended
		}
	}
}

func (n *Namespace) findAhead(ctx context.Context, tok record.Token, list record.ListRequest, each float64) *ahead {
	p, err := placeOf(tok)
	if err != nil {
		return nil
	}
	a := &ahead{kind: tok.Kind, from: behind(list), end: successor(list.Prefix)}
	const spare = 20 // those of the record that the list comes after, for one
	limit := min(int(1.1*each*float64(limitOf(list)))+spare, aheadMost)
	o := readOptions{snapshot: true}
	b := appendCommand(nil, "find", p)
	b, start := beginElement(b, bson.TypeEmbeddedDocument, "filter")
	b = endDocument(appendNames(b, a.from, a.end), start)
	b, start = beginElement(b, bson.TypeEmbeddedDocument, "sort")
	b = endDocument(bsoncore.AppendInt32Element(b, "_id", 1), start)
	b = bsoncore.AppendInt32Element(b, "limit", int32(limit))
	b = bsoncore.AppendInt32Element(b, "batchSize", int32(limit))
	b = bsoncore.AppendBooleanElement(b, "singleBatch", true)
	rs := recordSet{kind: tok.Kind}
	found, bytes := 0, 0
	a.at, err = n.find(ctx, p, endDocument(o.append(b), 0), o, func(doc []byte) error {
		found, bytes = found+1, bytes+len(doc)
		return rs.add(doc)
	})
	if err != nil {
		return nil // the list goes without, and meets the error itself if it lasts
	}
	if found == limit || bytes > aheadBytes {
		a.end, _ = rs.last.StringValueOK()
	}
	a.recs = rs.records()
	return a
}

// take removes from a selection what was read ahead, and returns it.
func (a *ahead) take(s *selection, at bson.Timestamp) []record.Record {
	if a == nil || !a.at.Equal(at) {
		return nil
	}
	var whole selection
	s.prefixes = slices.DeleteFunc(s.prefixes, func(p string) bool {
		end := successor(p)
		has := p >= a.from && (a.end == "" || end != "" && end <= a.end)
		if has {
			whole.prefixes = append(whole.prefixes, p)
		}
		return has
	})
	return slices.DeleteFunc(a.recs, func(r record.Record) bool {
		name, ok := r.Key.Name()
		return !ok || !whole.covers(name)
	})
}

// limitOf is how many records a list asks for.
func limitOf(list record.ListRequest) int {
	if list.Limit <= 0 {
		return defaultListLimit
	}
	return list.Limit
}
