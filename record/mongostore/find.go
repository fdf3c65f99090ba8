package mongostore

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller/record"
)

const (
	keysPerFind     = 1000 // of an $in
	prefixesPerFind = 100  // of an $or
)

// readOptions says how a find reads and what it returns.
type readOptions struct {
	keysOnly bool // _id alone
	guards   bool // with the guard element of managed kinds
	// snapshot reads with read concern snapshot, at the time at if it is set, otherwise
	// at one not before after. Without it the find belongs to a transaction.
	snapshot  bool
	at, after bson.Timestamp
}

// append appends what ends a find.
func (o readOptions) append(dst []byte) []byte {
	if o.keysOnly {
		var at int
		dst, at = beginElement(dst, bson.TypeEmbeddedDocument, "projection")
		dst = bsoncore.AppendInt32Element(dst, "_id", 1)
		if o.guards {
			dst = bsoncore.AppendInt32Element(dst, guardField, 1)
		}
		dst = endDocument(dst, at)
	}
	if !o.snapshot {
		return dst
	}
	dst, start := beginElement(dst, bson.TypeEmbeddedDocument, "readConcern")
	dst = bsoncore.AppendStringElement(dst, "level", "snapshot")
	switch {
	case !o.at.IsZero():
		dst = bsoncore.AppendTimestampElement(dst, "atClusterTime", o.at.T, o.at.I)
	case !o.after.IsZero():
		dst = bsoncore.AppendTimestampElement(dst, "afterClusterTime", o.after.T, o.after.I)
	}
	return endDocument(dst, start)
}

// find runs a find command to its end and yields each document, whose bytes are the
// caller's. ctx carries the session that getMore needs. It returns the snapshot's time.
func (n *Namespace) find(ctx context.Context, p place, command []byte, yield func(doc []byte) error) (bson.Timestamp, error) {
	what := "find " + p.coll
	raw, err := n.run(ctx, command)
	if err != nil {
		return bson.Timestamp{}, classifyRead(what, err)
	}
	r, err := parseReply(raw)
	if err != nil {
		return bson.Timestamp{}, fmt.Errorf("%s: %w", what, err)
	}
	at := r.at
	for {
		if err := each(r.docs, yield); err != nil {
			return at, fmt.Errorf("%s: %w", what, err)
		}
		if r.id == 0 {
			return at, nil
		}
		if r, err = n.getMore(ctx, p, r.id, 0); err != nil {
			return at, classifyRead(what, err)
		}
	}
}

// findKeys finds documents by key, in several commands if need be.
func (n *Namespace) findKeys(ctx context.Context, p place, keys []record.Key, o readOptions, yield func(doc []byte) error) error {
	_, err := n.findSelected(ctx, p, selection{keys: keys}, o, yield)
	return err
}

// selection is the keys and prefixes asked for of one kind, none covered by another.
type selection struct {
	keys     []record.Key
	prefixes []string
}

func (n *Namespace) findSelected(ctx context.Context, p place, s selection, o readOptions, yield func(doc []byte) error) (bson.Timestamp, error) {
	buf := getBuffer()
	defer putBuffer(buf)
	at := o.at
	run := func(batch int, filter func(dst []byte) []byte) error {
		b := appendCommand((*buf)[:0], "find", p)
		b, start := beginElement(b, bson.TypeEmbeddedDocument, "filter")
		b = endDocument(filter(b), start)
		b = bsoncore.AppendInt32Element(b, "batchSize", int32(batch))
		*buf = endDocument(o.append(b), 0)
		got, err := n.find(ctx, p, *buf, yield)
		if err == nil && o.snapshot {
			// Everything else is read at the same time.
			at, o.at = got, got
		}
		return err
	}
	for keys := range slices.Chunk(s.keys, keysPerFind) {
		err := run(len(keys)+1, func(b []byte) []byte { return appendIn(b, keys) })
		if err != nil {
			return at, err
		}
	}
	for prefixes := range slices.Chunk(s.prefixes, prefixesPerFind) {
		err := run(10000, func(b []byte) []byte { return appendPrefixes(b, prefixes) })
		if err != nil {
			return at, err
		}
	}
	return at, nil
}

func appendIn(dst []byte, keys []record.Key) []byte {
	dst, id := beginElement(dst, bson.TypeEmbeddedDocument, "_id")
	dst, in := beginElement(dst, bson.TypeArray, "$in")
	for i, k := range keys {
		dst = appendIndexed(dst, k[0], i)
		dst = append(dst, k[1:]...)
	}
	return endDocument(endDocument(dst, in), id)
}

func appendPrefixes(dst []byte, prefixes []string) []byte {
	dst, or := beginElement(dst, bson.TypeArray, "$or")
	for i, p := range prefixes {
		dst = appendIndexed(dst, byte(bson.TypeEmbeddedDocument), i)
		start := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		var id int
		dst, id = beginElement(dst, bson.TypeEmbeddedDocument, "_id")
		dst = bsoncore.AppendStringElement(dst, "$gte", p)
		if end := successor(p); end != "" {
			dst = bsoncore.AppendStringElement(dst, "$lt", end)
		}
		dst = endDocument(endDocument(dst, id), start)
	}
	return endDocument(dst, or)
}

// successor is the least string that is greater than all with the prefix, or empty when
// only the end of all strings is.
func successor(prefix string) string {
	for prefix != "" {
		r, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch {
		case r == utf8.RuneError && size == 1:
			// Not text. A shorter prefix selects more than was asked for, which the
			// reader drops.
		case r == utf8.MaxRune:
		case r == 0xD7FF:
			return prefix + "\uE000" // surrogates are no text
		default:
			return prefix + string(r+1)
		}
	}
	return ""
}
