package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

var _ record.IndexReader = (*Client)(nil)

const codeBadValue = 2

// entriesPerRead bounds the index entries that one read of a range with a Prefix looks at. Most
// entries may have other names, and the server has no limit for the entries that it skips.
const entriesPerRead = 2000

// ListIndexed lists records by the index of a declared field. The command names the index, so the
// server refuses it if the index is missing, under construction, or hidden. The result is then
// record.ErrNoIndex. The name alone identifies the declared index: controllers build it and refuse
// another one with the name.
func (c *Client) ListIndexed(ctx context.Context, req record.IndexRequest) (record.IndexPage, error) {
	if req.Limit <= 0 {
		req.Limit = defaultListLimit
	}
	read := c.listIndexed
	if req.Equal.Type == 0 && req.Prefix != "" {
		read = c.listAmong
	}
	page, err := read(ctx, req)
	// The hint names an index that is missing or hidden.
	if conn.HasCode(err, codeBadValue, conn.CodeIndexNotFound) {
		return record.IndexPage{}, fmt.Errorf("list %s by %s: %w", req.Token.Name, req.Field, record.ErrNoIndex)
	}
	return page, conn.Classify("list "+req.Token.Name+" by "+req.Field, err)
}

// indexFind returns the elements that all finds of a request share.
func indexFind(req record.IndexRequest, filter bson.D, limit int) []bson.E {
	sort := bson.D{{Key: "_id", Value: 1}}
	if req.Equal.Type == 0 {
		direction := 1
		if req.Reverse {
			direction = -1
		}
		sort = bson.D{{Key: req.Field, Value: direction}, {Key: "_id", Value: direction}}
	}
	return []bson.E{
		{Key: "filter", Value: filter},
		{Key: "sort", Value: sort},
		{Key: "hint", Value: record.IndexedName(req.Field)},
		{Key: "limit", Value: limit},
		{Key: "batchSize", Value: limit},
	}
}

// rangeOf returns the bounds of a range. A comparison selects only values of its own type.
func rangeOf(req record.IndexRequest) bson.D {
	bounds := bson.D{{Key: "$gt", Value: req.Above}}
	if req.Below.Type != 0 {
		bounds = append(bounds, bson.E{Key: "$lt", Value: req.Below})
	}
	return bounds
}

// listIndexed reads the documents directly.
func (c *Client) listIndexed(ctx context.Context, req record.IndexRequest) (page record.IndexPage, err error) {
	value := bson.D{{Key: "$eq", Value: req.Equal}}
	if req.Equal.Type == 0 {
		value = rangeOf(req)
	}
	filter := bson.D{{Key: req.Field, Value: value}, {Key: "_id", Value: namesOf(record.ListRequest{Prefix: req.Prefix, After: req.After})}, {Key: wire.GuardField + ".x", Value: notTrue}}
	size := 0
	// A retry starts with an empty page.
	begin := func() { page, size = record.IndexPage{Done: true}, 0 }
	err = c.finding(ctx, req.Token, begin, func(doc bson.Raw) error {
		// The extra document only shows that there are more.
		if len(page.Records) == req.Limit || req.Bytes > 0 && size >= req.Bytes {
			page.Done = false
			return errEnough
		}
		r, live, err := c.liveRecord(req.Token, doc)
		if err != nil || !live {
			return err
		}
		size += len(r.Doc)
		page.Records = append(page.Records, r)
		page.LastName, _ = r.Key.Name()
		page.Last = req.Equal
		// The caller continues behind the entry by which the document was found.
		if req.Equal.Type == 0 {
			page.Last = entryOf(r.Doc, req)
		}
		page.Values = append(page.Values, page.Last)
		page.Looked++
		return nil
	}, indexFind(req, filter, req.Limit+1)...) // one more, to see whether there are more
	return page, err
}

func (c *Client) liveRecord(tok record.Token, doc bson.Raw) (record.Record, bool, error) {
	doc, live, err := liveDoc(append(bson.Raw(nil), doc...))
	if err != nil || !live {
		return record.Record{}, false, err
	}
	key, err := record.KeyOfDoc(doc)
	return record.Record{Kind: tok.Kind, Key: key, Doc: doc}, err == nil, err
}

// entryOf returns the value that puts a document into the range. For an array it is one of the
// items. No message field with a single value reads such a document, so its reader stops there.
func entryOf(doc bson.Raw, req record.IndexRequest) bson.RawValue {
	values := record.ValuesAt(doc, req.Field)
	if i := slices.IndexFunc(values, func(v bson.RawValue) bool { return record.SameType(v, req.Above) }); i >= 0 {
		return values[i]
	}
	return req.Above
}

// listAmong reads a range of which only some names are wanted. It reads the small index entries
// first, and then the documents of the wanted names. It leaves out a document whose value changed
// in between.
func (c *Client) listAmong(ctx context.Context, req record.IndexRequest) (page record.IndexPage, err error) {
	type entry struct {
		value bson.RawValue
		name  string
	}
	var entries []entry
	filter := bson.D{{Key: req.Field, Value: rangeOf(req)}, {Key: "_id", Value: bson.D{{Key: "$gte", Value: ""}}}}
	projection := bson.E{Key: "projection", Value: bson.D{{Key: "_id", Value: 1}, {Key: req.Field, Value: 1}}}
	limit := max(entriesPerRead, req.Limit)
	err = c.finding(ctx, req.Token, func() { entries = entries[:0] }, func(doc bson.Raw) error {
		doc = append(bson.Raw(nil), doc...)
		name, _ := doc.Lookup("_id").StringValueOK()
		entries = append(entries, entry{entryOf(doc, req), name})
		return nil
	}, append(indexFind(req, filter, limit), projection)...)
	if err != nil {
		return page, err
	}
	page.Done = len(entries) < limit
	var keys bson.A
	for _, e := range entries {
		// Stop at the entry before, so that the next page begins with this name.
		if len(keys) == req.Limit {
			page.Done = false
			break
		}
		page.Looked++
		page.Last, page.LastName = e.value, e.name
		if strings.HasPrefix(e.name, req.Prefix) {
			keys = append(keys, e.name)
		}
	}
	found, size := map[string]record.Record{}, 0
	for i, e := range entries[:page.Looked] {
		if len(keys) > 0 && e.name == keys[0] {
			n := chunkOf(keys, len(found), size, req.Bytes)
			if err := c.byName(ctx, req.Token, keys[:n], found); err != nil {
				return page, err
			}
			keys = keys[n:]
		}
		// The value may have changed between the two reads; the new one may be out of the range.
		r, there := found[e.name]
		if !there || !slices.ContainsFunc(record.ValuesAt(r.Doc, req.Field), func(v bson.RawValue) bool { return record.CompareValues(v, e.value) == 0 }) {
			continue
		}
		page.Records, page.Values = append(page.Records, r), append(page.Values, e.value)
		if size += len(r.Doc); req.Bytes > 0 && size >= req.Bytes && i+1 < page.Looked {
			page.Done, page.Looked, page.Last, page.LastName = false, i+1, e.value, e.name
			break
		}
	}
	return page, nil
}

// chunkOf returns how many of the next documents to read at once. It starts with a few while their
// size is unknown, and continues with as many as fit.
func chunkOf(keys bson.A, had, size, bytes int) int {
	const few = 8
	switch {
	case bytes <= 0:
		return len(keys)
	case had == 0 || size == 0:
		return min(few, len(keys))
	default:
		return min(max((bytes-size)*had/size, few), len(keys))
	}
}

// byName adds the live records with the given names to found.
func (c *Client) byName(ctx context.Context, tok record.Token, names bson.A, found map[string]record.Record) error {
	return c.finding(ctx, tok, func() {}, func(doc bson.Raw) error {
		r, live, err := c.liveRecord(tok, doc)
		if err == nil && live {
			name, _ := r.Key.Name()
			found[name] = r
		}
		return err
	}, bson.E{Key: "filter", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: names}}}}}, bson.E{Key: "hint", Value: bson.D{{Key: "_id", Value: 1}}},
		bson.E{Key: "batchSize", Value: len(names) + 1})
}
