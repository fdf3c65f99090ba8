package proxy

import (
	"context"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// A query that is sorted by _id can go on at the next place: all documents up to one _id were given, and those
// after it are found there, because a move keeps the ids. Other orders do not tell what was given. So a query
// without a sort cannot go on, nor one in natural order, such as that of mongodump. The proxy does not add a sort:
// an index is slower than the order of the disk, and applications see the difference.

// ordered is a query by _id, and how far its client has come. Its values do not change.
type ordered struct {
	find  command
	limit int64 // 0: none
	down  bool
	given int64          // documents that the client has
	last  bsoncore.Value // _id of the last one of these
	lacks bool           // a document has no _id
}

// longestOrdered bounds the bytes of a query that is kept for a cursor, and those of an _id.
const longestOrdered = 16 << 10

// harmless are the elements of a find that do not change which documents follow a given one.
var harmless = []string{
	"find", "filter", "skip", "batchSize", "comment", "maxTimeMS", "readConcern", "$readPreference", "$db", "lsid",
	"$clusterTime", "let", "hint", "noCursorTimeout", "allowDiskUse", "apiVersion", "apiStrict", "apiDeprecationErrors",
}

// orderOf returns the order of a query by _id; nil: it is another command. Collections that move have no collation
// of their own.
func orderOf(c command) *ordered {
	if c.verb != "find" || c.transaction || len(c.msg.Body) > longestOrdered || len(c.msg.Sequences) > 0 {
		return nil
	}
	elems, err := c.msg.Body.Elements()
	if err != nil {
		return nil
	}
	o, sorted := &ordered{}, false
	for _, e := range elems {
		v := e.Value()
		doc, _ := v.DocumentOK()
		n, _ := v.AsInt64OK()
		on, isBool := v.BooleanOK()
		switch key := e.Key(); {
		case key == "sort":
			sorted, o.down = byID(doc)
		case key == "projection" && !keepsID(doc), key == "limit" && n < 0:
			return nil
		case key == "limit":
			o.limit = n
		case key == "projection", slices.Contains(harmless, key), isBool && !on:
		default:
			return nil
		}
	}
	if !sorted {
		return nil
	}
	o.find = c
	o.find.msg.Body = slices.Clone(c.msg.Body) // the message may be larger
	return o
}

// byID reports whether a sort is by _id alone, and whether it goes down.
func byID(sort bsoncore.Document) (is, down bool) {
	elems, err := sort.Elements()
	if err != nil || len(elems) != 1 || elems[0].Key() != "_id" {
		return false, false
	}
	n, ok := elems[0].Value().AsInt64OK()
	return ok && (n == 1 || n == -1), n == -1
}

// keepsID reports whether a projection leaves the _id as it is.
func keepsID(projection bsoncore.Document) bool {
	elems, err := projection.Elements()
	return err == nil && !slices.ContainsFunc(elems, func(e bsoncore.Element) bool {
		n, number := e.Value().AsInt64OK()
		on, is := e.Value().BooleanOK()
		plain := number && n == 1 || is && on
		return e.Key() == "_id" && !plain || strings.HasPrefix(e.Key(), "_id.")
	})
}

// after returns the order after more documents were given.
func (o *ordered) after(more int64, last bsoncore.Document) *ordered {
	if o == nil || more == 0 {
		return o
	}
	next := *o
	next.given += more
	id, err := last.LookupErr("_id")
	next.lacks = o.lacks || err != nil || len(id.Data) > longestOrdered
	next.last = bsoncore.Value{Type: id.Type, Data: slices.Clone(id.Data)} // the reply is large
	return &next
}

// delivered is after for the documents of a reply.
func (o *ordered) delivered(reply bsoncore.Document) *ordered {
	if o == nil {
		return nil
	}
	for _, key := range []string{"firstBatch", "nextBatch"} {
		v, err := reply.LookupErr("cursor", key)
		if err != nil {
			continue
		}
		list, ok := v.ArrayOK()
		if !ok || len(list) < 5 {
			return nil
		}
		// Without a list of all documents: there can be very many.
		var n int64
		var last bsoncore.Element
		for left := []byte(list[4 : len(list)-1]); len(left) > 0; n++ {
			if last, left, ok = bsoncore.ReadElement(left); !ok {
				return nil
			}
		}
		if n == 0 {
			return o
		}
		doc, ok := last.Value().DocumentOK()
		if !ok {
			return nil
		}
		return o.after(n, doc)
	}
	return nil
}

// rest returns the query for what was not given yet, with the size of the next batch; 0: any.
func (o *ordered) rest(batch int64) (command, error) {
	c := o.find
	drop := []string{"batchSize", "limit"}
	if o.given > 0 {
		drop = append(drop, "skip", "filter")
	}
	body, err := without(c.msg.Body, drop...)
	if err != nil {
		return c, err
	}
	b := bsoncore.NewDocumentBuilder()
	elems, err := body.Elements()
	if err != nil {
		return c, err
	}
	for _, e := range elems {
		b.AppendValue(e.Key(), e.Value())
	}
	if o.given > 0 {
		// $expr compares values of all types in the order of the sort; a plain $gt finds only those of one type.
		than := "$gt"
		if o.down {
			than = "$lt"
		}
		literal := bsoncore.NewDocumentBuilder().AppendValue("$literal", o.last).Build()
		operands := bsoncore.NewArrayBuilder().AppendString("$_id").AppendDocument(literal).Build()
		later := bsoncore.NewDocumentBuilder().AppendDocument("$expr", bsoncore.NewDocumentBuilder().AppendArray(than, operands).Build()).Build()
		and := bsoncore.NewArrayBuilder()
		if v, err := c.msg.Body.LookupErr("filter"); err == nil {
			and.AppendValue(v)
		}
		b.AppendDocument("filter", bsoncore.NewDocumentBuilder().AppendArray("$and", and.AppendDocument(later).Build()).Build())
	}
	if o.limit > 0 {
		b.AppendInt64("limit", o.limit-o.given)
	}
	if batch > 0 {
		b.AppendInt64("batchSize", batch)
	}
	c.msg.Body = b.Build()
	return c, nil
}

// kept looks for the last document that was given. It is not there if the ids have changed with the move, or if it
// was deleted since.
func (p *Proxy) kept(ctx context.Context, d *deployed, o *ordered) bool {
	if o.given == 0 {
		return true
	}
	c := o.find
	same := bsoncore.NewDocumentBuilder().AppendDocument("_id", bsoncore.NewDocumentBuilder().AppendValue("$eq", o.last).Build()).Build()
	b := bsoncore.NewDocumentBuilder().AppendString("find", c.collection).AppendDocument("filter", same).
		AppendDocument("projection", bsoncore.NewDocumentBuilder().AppendInt32("_id", 1).Build()).
		AppendInt32("limit", 1).AppendBoolean("singleBatch", true)
	for _, key := range []string{"readConcern", "$readPreference"} {
		if v, err := c.msg.Body.LookupErr(key); err == nil {
			b.AppendValue(key, v)
		}
	}
	c.msg.Body = c.inherit(b).AppendString("$db", c.database).Build()
	docs, err := batchOf(p.read(ctx, d, c))
	return err == nil && len(docs) == 1
}

// goOn answers a getMore by a query for the rest of a cursor by _id, where the data is now. It returns nil if that
// is not possible.
func (p *Proxy) goOn(ctx context.Context, c command, id int64, one cursor) bsoncore.Document {
	if one.rest == nil || one.rest.by == nil || one.rest.by.lacks {
		return nil
	}
	o, d := one.rest.by, one.moves
	if o.limit > 0 && o.given >= o.limit || !p.kept(ctx, d, o) {
		return nil
	}
	find, err := o.rest(number(c.msg.Body, "batchSize"))
	if err != nil {
		return nil
	}
	reply := p.query(ctx, d, find, o)
	if !succeeded(reply) {
		_ = p.endCursor(ctx, c, id)
		return reply
	}
	docs, err := batchOf(reply)
	if err != nil {
		return failure(codeHostUnreachable, err.Error())
	}
	_ = p.endCursor(ctx, c, id) // it may be gone already
	if opened := cursorOf(reply); opened == 0 {
		id = 0
	} else if !p.cursors.rename(c.user, opened, id) {
		return nil
	}
	b := bsoncore.NewDocumentBuilder().AppendDocument("cursor", c.batch(docs, id))
	for _, key := range []string{"operationTime", "$clusterTime"} {
		if v, err := reply.LookupErr(key); err == nil {
			b.AppendValue(key, v)
		}
	}
	return b.AppendDouble("ok", 1).Build()
}

// batch is the cursor of the reply to a getMore.
func (c command) batch(docs []bsoncore.Document, id int64) bsoncore.Document {
	return bsoncore.NewDocumentBuilder().AppendArray("nextBatch", array(docs)).AppendInt64("id", id).
		AppendString("ns", c.database+"."+c.collection).Build()
}
