package recordio

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

const (
	defaultPage = 1000
	largestPage = 100000
)

// Scan returns the next page of a range in key order, with one find on the index of _id. The next
// page's cursor is the _id of the first record left out, which stays valid if that record is
// deleted. req.Limit is 1000 by default and at most 100000.
func (n *Records) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	p, err := wire.PlaceOf(req.Token)
	if err != nil {
		return record.Page{}, fmt.Errorf("scan: %w", err)
	}
	if req.Limit <= 0 {
		req.Limit = defaultPage
	}
	req.Limit = min(req.Limit, largestPage)
	var page record.Page
	err = n.AtSnapshot(ctx, req.NotBefore, func(ctx context.Context, o ReadOptions) error {
		// Only managed documents contain guards.
		o.keysOnly, o.guards = req.KeysOnly, !req.Token.Fixed
		var err error
		// Guards of a fixed-name kind are in another collection, so both must be read.
		if req.Token.Fixed && req.Guards {
			page, err = n.scanMerged(ctx, p, req, o)
		} else {
			page, err = n.scanPage(ctx, p, req, o)
		}
		return err
	})
	if err != nil {
		return record.Page{}, fmt.Errorf("scan: %w", err)
	}
	return page, nil
}

func (n *Records) scanPage(ctx context.Context, p wire.Place, req record.ScanRequest, o ReadOptions) (record.Page, error) {
	rs := wire.RecordSet{Kind: req.Token.Kind, Fixed: req.Token.Fixed, Guards: req.Guards}
	next, at, err := n.scan(ctx, p, req.Range, req.Limit, o, rs.Grow, rs.Add)
	if err != nil {
		return record.Page{}, err
	}
	return record.Page{Records: rs.Records(), Version: conn.VersionOf(at), Next: next, Done: next == nil}, nil
}

// The ends of the key order. Index bounds cannot reach maxKey: the upper bound is exclusive, so
// they end before it.
var (
	minKey = record.Key([]byte{byte(bson.TypeMinKey)})
	maxKey = record.Key([]byte{byte(bson.TypeMaxKey)})
)

// scan yields at most limit documents of a range. It returns the cursor of the first one that it
// did not yield, nil if there is none. The size of a reply (16 MiB) limits it as well. If grow is
// not nil, scan first calls it with the number of documents.
func (n *Records) scan(ctx context.Context, p wire.Place, r record.Range, limit int, o ReadOptions,
	grow func(int), yield func([]byte) error,
) (record.Cursor, bson.Timestamp, error) {
	last := Selection{Keys: []record.Key{maxKey}}
	switch {
	case len(r.From) > 0 && string(r.From) == string(r.To), string(r.To) == string(minKey):
		// The server refuses empty bounds. The empty result still needs a time.
		at := o.At
		if at.IsZero() {
			var err error
			if at, err = n.MajorityNow(ctx); err != nil {
				return nil, at, err
			}
		}
		return nil, at, nil
	case string(r.From) == string(maxKey):
		at, err := n.findSelected(ctx, p, last, o, yield)
		return nil, at, err
	}
	next, at, err := n.scanIndex(ctx, p, r, limit, o, grow, yield)
	// Only an unbounded scan that has a lower bound misses a record with the _id MaxKey.
	if err != nil || next != nil || len(r.From) == 0 || len(r.To) > 0 {
		return next, at, err
	}
	// Only find out whether it exists; the next page returns it.
	o.At, o.keysOnly = at, true
	_, err = n.findSelected(ctx, p, last, o, func([]byte) error {
		next = record.Cursor(maxKey)
		return nil
	})
	return next, at, err
}

func (n *Records) scanIndex(ctx context.Context, p wire.Place, r record.Range, limit int, o ReadOptions,
	grow func(int), yield func([]byte) error,
) (record.Cursor, bson.Timestamp, error) {
	what := "scan " + p.Coll
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	*buf = appendScan(*buf, p, r, limit, o)
	raw, err := n.runFind(ctx, *buf, o)
	if err != nil {
		return nil, bson.Timestamp{}, classifyRead(what, err)
	}
	reply, err := wire.ParseReply(raw)
	reply.At = o.timeOf(reply)
	if err == nil {
		err = o.tooOld(reply.At)
	}
	if err != nil {
		return nil, bson.Timestamp{}, fmt.Errorf("%s: %w", what, err)
	}
	if reply.ID != 0 {
		defer n.KillCursor(ctx, p, reply.ID)
	}
	count := 0
	if err := wire.Each(reply.Docs, func([]byte) error { count++; return nil }); err != nil {
		return nil, reply.At, fmt.Errorf("%s: %w", what, err)
	}
	yielded, more := count, false
	// Keep one document back as the start of the next page.
	if count > limit || reply.ID != 0 && count > 1 {
		yielded, more = min(limit, count-1), true
	}
	if grow != nil {
		grow(yielded)
	}
	var next record.Cursor
	i := 0
	err = wire.Each(reply.Docs, func(doc []byte) error {
		i++
		switch {
		case i <= yielded:
			return yield(doc)
		case i == yielded+1 && more:
			l, err := wire.LayoutOf(doc, false)
			next = conn.CursorAt(l.ID)
			return err
		default:
			return nil
		}
	})
	if err != nil {
		return nil, reply.At, fmt.Errorf("%s: %w", what, err)
	}
	if reply.ID == 0 {
		return next, reply.At, nil
	}
	if !more {
		// One document filled the reply, so ask for the next one.
		if next, err = n.peek(ctx, p, reply.ID); err != nil {
			return nil, reply.At, classifyRead(what, err)
		}
	}
	return next, reply.At, nil
}

// peek returns the place of an open cursor's next document, nil if there is none.
func (n *Records) peek(ctx context.Context, p wire.Place, id int64) (record.Cursor, error) {
	r, err := n.GetMore(ctx, p, id, 1)
	if err != nil {
		return nil, err
	}
	var next record.Cursor
	err = wire.Each(r.Docs, func(doc []byte) error {
		l, err := wire.LayoutOf(doc, false)
		next = conn.CursorAt(l.ID)
		return err
	})
	return next, err
}

func appendScan(dst []byte, p wire.Place, r record.Range, limit int, o ReadOptions) []byte {
	dst = wire.AppendCommand(dst, "find", p)
	dst, at := wire.BeginElement(dst, bson.TypeEmbeddedDocument, "hint")
	dst = bsoncore.AppendInt32Element(dst, "_id", 1)
	dst = wire.EndDocument(dst, at)
	// On one node the index gives this order. Behind mongos only a sort does. Without it, records
	// would come as the shards send them, and the next page would skip some.
	dst, at = wire.BeginElement(dst, bson.TypeEmbeddedDocument, "sort")
	dst = bsoncore.AppendInt32Element(dst, "_id", 1)
	dst = wire.EndDocument(dst, at)
	// Unlike a condition on _id, index bounds do not stop at the bounds of a type.
	dst = appendBound(dst, "min", r.From)
	dst = appendBound(dst, "max", r.To)
	dst = bsoncore.AppendInt32Element(dst, "limit", int32(limit+1))
	dst = bsoncore.AppendInt32Element(dst, "batchSize", int32(limit+1))
	return wire.EndDocument(o.Append(dst), 0)
}

func appendBound(dst []byte, name string, c record.Cursor) []byte {
	if len(c) == 0 {
		return dst
	}
	dst, at := wire.BeginElement(dst, bson.TypeEmbeddedDocument, name)
	dst = wire.AppendValueElement(dst, "_id", bson.RawValue{Type: bson.Type(c[0]), Value: c[1:]})
	return wire.EndDocument(dst, at)
}

// scanMerged is scanPage for a fixed-name kind with guards. It reads documents and side collection
// entries at one time in key order, and joins them by key. An entry without a document is a
// tombstone.
func (n *Records) scanMerged(ctx context.Context, p wire.Place, req record.ScanRequest, o ReadOptions) (record.Page, error) {
	docs, err := n.scanPage(ctx, p, req, o)
	if err != nil {
		return record.Page{}, err
	}
	o.At, o.keysOnly = conn.TimestampOf(docs.Version), false
	type entry struct {
		key record.Key
		sideEntry
	}
	var entries []entry
	next, _, err := n.scan(ctx, wire.Place{Coll: conn.GuardsName(req.Token.Kind)}, req.Range, req.Limit, o, nil, func(doc []byte) error {
		key, e, err := sideEntryOf(doc)
		if !wire.IsEnded(key) { // no record
			entries = append(entries, entry{key, e})
		}
		return err
	})
	if err != nil {
		return record.Page{}, err
	}
	// Behind the nearer of the two cursors, one of the lists is incomplete.
	end := docs.Next
	if end == nil || next != nil && next.Compare(end) < 0 {
		end = next
	}
	page := record.Page{Version: docs.Version, Next: end, Done: end == nil}
	// Merge two sorted lists.
	for i, k := 0, 0; i < len(docs.Records) || k < len(entries); {
		order := 0
		switch {
		case k == len(entries):
			order = -1
		case i == len(docs.Records):
			order = 1
		default:
			order = wire.CompareKeys(docs.Records[i].Key, entries[k].key)
		}
		var r record.Record
		if order <= 0 {
			r = docs.Records[i]
		}
		switch {
		case order == 0:
			r.Guard = entries[k].guard
		case order > 0:
			r = entries[k].tombstone(req.Token.Kind, entries[k].key)
		}
		// The page ends where one of the two lists does.
		at := record.Cursor(r.Key)
		if end != nil && at.Compare(end) >= 0 {
			break
		}
		// The page is full; the next one begins with this key.
		if len(page.Records) == req.Limit {
			page.Next, page.Done = at, false
			break
		}
		page.Records = append(page.Records, r)
		if order <= 0 {
			i++
		}
		if order >= 0 {
			k++
		}
	}
	return page, nil
}
