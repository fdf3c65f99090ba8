package mongostore

import (
	"context"
	"fmt"
	"iter"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/record"
)

const (
	keysPerFind     = 1000    // keys of an $in
	keyBytesPerFind = 8 << 20 // bytes of an $in; a command has at most 16 MiB
)

// readOptions control how a find reads and what it returns.
type readOptions struct {
	keysOnly bool // return only _id
	guards   bool // return the guard element of managed kinds
	// snapshot reads with read concern snapshot: at the time at if it is set, otherwise at a time
	// not before after. Without it, the find belongs to a transaction.
	snapshot  bool
	at, after bson.Timestamp
	majority  bool   // read concern majority, not before after, for a find with one batch
	bound     *bound // for all finds of a read together; nil: none
	near      bool   // prefixes are probably neighbours
}

// bound is the number of bytes of documents that a read may still return.
type bound struct{ left int }

func newBound(bytes int) *bound {
	if bytes <= 0 {
		return nil
	}
	return &bound{bytes}
}

// take counts a batch of documents. It returns record.ErrTooLarge beyond the bound.
func (b *bound) take(docs []byte) error {
	if b == nil {
		return nil
	}
	if b.left -= len(docs); b.left < 0 {
		return record.ErrTooLarge
	}
	return nil
}

// append appends the projection and read concern that end a find command.
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
	// A find in a transaction inherits the read concern of the transaction.
	level := "snapshot"
	switch {
	case o.majority:
		level = "majority"
	case !o.snapshot:
		return dst
	}
	dst, start := beginElement(dst, bson.TypeEmbeddedDocument, "readConcern")
	dst = bsoncore.AppendStringElement(dst, "level", level)
	switch {
	case !o.at.IsZero():
		dst = bsoncore.AppendTimestampElement(dst, "atClusterTime", o.at.T, o.at.I)
	case !o.after.IsZero():
		dst = bsoncore.AppendTimestampElement(dst, "afterClusterTime", o.after.T, o.after.I)
	}
	return endDocument(dst, start)
}

// timeOf returns the snapshot time of a reply. For a missing collection, such as the side
// collection of a kind without applied writes, the server names no time. The result is then the
// requested time.
func (o readOptions) timeOf(r reply) bson.Timestamp {
	if r.at.IsZero() {
		return o.at
	}
	return r.at
}

// tooOld refuses a reply with a snapshot that is older than requested, or has no time. A server
// waits for afterClusterTime or fails, so another reply cannot be trusted.
func (o readOptions) tooOld(at bson.Timestamp) error {
	if o.snapshot && at.Before(o.after) {
		return fmt.Errorf("%w: its version is %d.%d, but %d.%d is needed", errSnapshot, at.T, at.I, o.after.T, o.after.I)
	}
	return nil
}

// afterWait bounds the wait of a server for the cluster time that a read requests. A cut-off former
// primary waits until it is back. A retry finds its successor.
const afterWait = 20 * time.Second

// runFind sends a find, the first command of a cursor.
func (n *Records) runFind(ctx context.Context, command []byte, o readOptions) (bson.Raw, error) {
	// Only such a read can wait for a time in the future.
	if o.snapshot && o.at.IsZero() && !o.after.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, afterWait)
		defer cancel()
	}
	return n.run(ctx, command)
}

// find runs a find command to its end and yields each document. The bytes belong to the caller. ctx
// must hold the session that getMore needs. find returns the time of the snapshot.
func (n *Records) find(ctx context.Context, p place, command []byte, o readOptions, yield func(doc []byte) error) (bson.Timestamp, error) {
	what := "find " + p.coll
	raw, err := n.runFind(ctx, command, o)
	if err != nil {
		return bson.Timestamp{}, classifyRead(what, err)
	}
	r, err := parseReply(raw)
	at := o.timeOf(r)
	// An older snapshot must not reach the caller, not even in part.
	if err == nil {
		err = o.tooOld(at)
	}
	if err != nil {
		return bson.Timestamp{}, fmt.Errorf("%s: %w", what, err)
	}
	for {
		// The server expires an open cursor only after minutes, so close it on an error.
		if err := o.bound.take(r.docs); err != nil {
			if r.id != 0 {
				n.killCursor(ctx, p, r.id)
			}
			return at, fmt.Errorf("%s: %w", what, err)
		}
		if err := each(r.docs, yield); err != nil {
			if r.id != 0 {
				n.killCursor(ctx, p, r.id)
			}
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

// findKeys finds documents by key, in several commands if necessary.
func (n *Records) findKeys(ctx context.Context, p place, keys []record.Key, o readOptions, yield func(doc []byte) error) error {
	_, err := n.findSelected(ctx, p, selection{keys: keys}, o, yield)
	return err
}

// selection holds the selected keys and prefixes of one kind. None covers another.
type selection struct {
	keys     []record.Key
	prefixes []string
}

func (n *Records) findSelected(ctx context.Context, p place, s selection, o readOptions, yield func(doc []byte) error) (bson.Timestamp, error) {
	buf := getBuffer()
	defer putBuffer(buf)
	at := o.at
	run := func(batch int, sorted bool, filter func(dst []byte) []byte, yield func(doc []byte) error) error {
		b := appendCommand((*buf)[:0], "find", p)
		b, start := beginElement(b, bson.TypeEmbeddedDocument, "filter")
		b = endDocument(filter(b), start)
		if sorted {
			var by int
			b, by = beginElement(b, bson.TypeEmbeddedDocument, "sort")
			b = endDocument(bsoncore.AppendInt32Element(b, "_id", 1), by)
		}
		b = bsoncore.AppendInt32Element(b, "batchSize", int32(batch))
		*buf = endDocument(o.append(b), 0)
		got, err := n.find(ctx, p, *buf, o, yield)
		if o.snapshot && !got.IsZero() {
			// Read the rest at the same time.
			at, o.at = got, got
		}
		return err
	}
	// Ask for one more than there are, so that the first reply ends the cursor.
	for keys := range chunkKeys(s.keys) {
		err := run(len(keys)+1, false, func(b []byte) []byte { return appendIn(b, keys) }, yield)
		if err != nil {
			return at, err
		}
	}
	find := findPrefixes
	if o.near {
		find = findNear
	}
	return at, find(s.prefixes, run, yield)
}

// chunkKeys cuts keys or patterns into chunks for one command, by number and by bytes.
func chunkKeys[K ~string](keys []K) iter.Seq[[]K] {
	return func(yield func([]K) bool) {
		for len(keys) > 0 {
			n, size := 0, 0
			// Take at least one key, however long it is.
			for n < min(len(keys), keysPerFind) && (n == 0 || size+len(keys[n]) <= keyBytesPerFind) {
				size += len(keys[n])
				n++
			}
			if !yield(keys[:n]) {
				return
			}
			keys = keys[n:]
		}
	}
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

// successor returns the least string greater than every string with the prefix. It is empty if
// there is none.
func successor(prefix string) string {
	for prefix != "" {
		r, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch {
		case r == utf8.RuneError && size == 1:
			// Invalid text. A shorter prefix selects more than requested; the reader drops the
			// rest.
		case r == utf8.MaxRune:
		case r == 0xD7FF:
			return prefix + "\uE000" // skip the surrogates, which are no text
		default:
			return prefix + string(r+1)
		}
	}
	return ""
}
