package recordio

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

const (
	keysPerFind     = 1001    // keys of an $in: 1,000 records, and the mark of the token
	keyBytesPerFind = 8 << 20 // bytes of an $in; a command has at most 16 MiB
)

// ReadOptions control how a find reads and what it returns.
type ReadOptions struct {
	keysOnly bool // return only _id
	guards   bool // return the guard element of managed kinds
	// snapshot reads with read concern snapshot: at the time at if it is set, otherwise at a time
	// not before after. Without it, the find belongs to a transaction.
	Snapshot  bool
	At, After bson.Timestamp
	Majority  bool   // read concern majority, not before after, for a find with one batch
	Bound     *bound // for all finds of a read together; nil: none
	Near      bool   // prefixes are probably neighbours
}

// bound is the number of bytes of documents that a read may still return. Finds side by side share it.
type bound struct{ left atomic.Int64 }

// NewBound returns the bound of one read.
func NewBound(bytes int) *bound {
	if bytes <= 0 {
		return nil
	}
	b := new(bound)
	b.left.Store(int64(bytes))
	return b
}

// Take counts a batch of documents. It returns record.ErrTooLarge beyond the bound.
func (b *bound) Take(docs []byte) error {
	if b == nil {
		return nil
	}
	if b.left.Add(-int64(len(docs))) < 0 {
		return record.ErrTooLarge
	}
	return nil
}

// Append appends the projection and read concern that end a find command.
func (o ReadOptions) Append(dst []byte) []byte {
	if o.keysOnly {
		var at int
		dst, at = wire.BeginElement(dst, bson.TypeEmbeddedDocument, "projection")
		dst = bsoncore.AppendInt32Element(dst, "_id", 1)
		if o.guards {
			dst = bsoncore.AppendInt32Element(dst, wire.GuardField, 1)
		}
		dst = wire.EndDocument(dst, at)
	}
	// A find in a transaction inherits the read concern of the transaction.
	level := "snapshot"
	switch {
	case o.Majority:
		level = "majority"
	case !o.Snapshot:
		return dst
	}
	dst, start := wire.BeginElement(dst, bson.TypeEmbeddedDocument, "readConcern")
	dst = bsoncore.AppendStringElement(dst, "level", level)
	switch {
	case !o.At.IsZero():
		dst = bsoncore.AppendTimestampElement(dst, "atClusterTime", o.At.T, o.At.I)
	case !o.After.IsZero():
		dst = bsoncore.AppendTimestampElement(dst, "afterClusterTime", o.After.T, o.After.I)
	}
	return wire.EndDocument(dst, start)
}

// timeOf returns the snapshot time of a reply. For a missing collection, such as the side
// collection of a kind without applied writes, the server names no time. The result is then the
// requested time.
func (o ReadOptions) timeOf(r wire.Reply) bson.Timestamp {
	if r.At.IsZero() {
		return o.At
	}
	return r.At
}

// tooOld refuses a reply with a snapshot that is older than requested, or has no time. A server
// waits for afterClusterTime or fails, so another reply cannot be trusted.
func (o ReadOptions) tooOld(at bson.Timestamp) error {
	if o.Snapshot && at.Before(o.After) {
		return fmt.Errorf("%w: its version is %d.%d, but %d.%d is needed", errSnapshot, at.T, at.I, o.After.T, o.After.I)
	}
	return nil
}

// afterWait bounds the wait of a server for the cluster time that a read requests. A cut-off former
// primary waits until it is back. A retry finds its successor.
const afterWait = 20 * time.Second

// runFind sends a find, the first command of a cursor.
func (n *Records) runFind(ctx context.Context, command []byte, o ReadOptions) (bson.Raw, error) {
	// Only such a read can wait for a time in the future.
	if o.Snapshot && o.At.IsZero() && !o.After.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, afterWait)
		defer cancel()
	}
	return n.Run(ctx, command)
}

// Find runs a find command to its end and yields each document. The bytes belong to the caller. ctx
// must hold the session that getMore needs. find returns the time of the snapshot.
func (n *Records) Find(ctx context.Context, p wire.Place, command []byte, o ReadOptions, yield func(doc []byte) error) (bson.Timestamp, error) {
	what := "find " + p.Coll
	raw, err := n.runFind(ctx, command, o)
	if err != nil {
		return bson.Timestamp{}, classifyRead(what, err)
	}
	r, err := wire.ParseReply(raw)
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
		if err := o.Bound.Take(r.Docs); err != nil {
			if r.ID != 0 {
				n.KillCursor(ctx, p, r.ID)
			}
			return at, fmt.Errorf("%s: %w", what, err)
		}
		if err := wire.Each(r.Docs, yield); err != nil {
			if r.ID != 0 {
				n.KillCursor(ctx, p, r.ID)
			}
			return at, fmt.Errorf("%s: %w", what, err)
		}
		if r.ID == 0 {
			return at, nil
		}
		next, err := n.GetMore(ctx, p, r.ID, 0)
		if err != nil {
			if o.Snapshot { // the end of a transaction closes its cursors
				n.KillCursor(ctx, p, r.ID)
			}
			return at, classifyRead(what, err)
		}
		r = next
	}
}

// findKeys finds documents by key, in several commands if necessary.
func (n *Records) findKeys(ctx context.Context, p wire.Place, keys []record.Key, o ReadOptions, yield func(doc []byte) error) error {
	_, err := n.findSelected(ctx, p, Selection{Keys: keys}, o, yield)
	return err
}

// Selection holds the selected keys and prefixes of one kind. None covers another.
type Selection struct {
	Keys     []record.Key
	Prefixes []string
}

func (n *Records) findSelected(ctx context.Context, p wire.Place, s Selection, o ReadOptions, yield func(doc []byte) error) (bson.Timestamp, error) {
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	at := o.At
	run := func(batch int, sorted bool, filter func(dst []byte) []byte, yield func(doc []byte) error) error {
		b := wire.AppendCommand((*buf)[:0], "find", p)
		b, start := wire.BeginElement(b, bson.TypeEmbeddedDocument, "filter")
		b = wire.EndDocument(filter(b), start)
		if sorted {
			var by int
			b, by = wire.BeginElement(b, bson.TypeEmbeddedDocument, "sort")
			b = wire.EndDocument(bsoncore.AppendInt32Element(b, "_id", 1), by)
		}
		b = bsoncore.AppendInt32Element(b, "batchSize", int32(batch))
		*buf = wire.EndDocument(o.Append(b), 0)
		got, err := n.Find(ctx, p, *buf, o, yield)
		if o.Snapshot && !got.IsZero() {
			// Read the rest at the same time.
			at, o.At = got, got
		}
		return err
	}
	// Ask for one more than there are, so that the first reply ends the cursor.
	for keys := range chunkKeys(s.Keys) {
		err := run(len(keys)+1, false, func(b []byte) []byte { return appendIn(b, keys) }, yield)
		if err != nil {
			return at, err
		}
	}
	find := findPrefixes
	if o.Near {
		find = findNear
	}
	return at, find(s.Prefixes, run, yield)
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
	dst, id := wire.BeginElement(dst, bson.TypeEmbeddedDocument, "_id")
	dst, in := wire.BeginElement(dst, bson.TypeArray, "$in")
	for i, k := range keys {
		dst = wire.AppendIndexed(dst, k[0], i)
		dst = append(dst, k[1:]...)
	}
	return wire.EndDocument(wire.EndDocument(dst, in), id)
}

// Successor returns the least string greater than every string with the prefix. It is empty if
// there is none.
func Successor(prefix string) string {
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
