package mongostore

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/record"
)

// maxCommandBytes bounds the documents of one command. The server takes messages of 16 MiB and 16
// KiB. One document of 16 MiB always fits alone.
const maxCommandBytes = 15 << 20

const (
	largeWrite    = 64 << 10 // bytes from which next checks the room in its buffer
	writeOverhead = 1 << 10  // bytes of a statement and of a command, beyond document and _id
)

// buffers holds command bodies for reuse. This is safe because the driver copies what it sends.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}

func getBuffer() *[]byte {
	b := buffers.Get().(*[]byte)
	*b = (*b)[:0]
	return b
}

// putBuffer returns a buffer to the pool. It drops huge ones, so that one huge document does not
// stay in memory.
func putBuffer(b *[]byte) {
	if cap(*b) <= 4<<20 {
		buffers.Put(b)
	}
}

// place is a collection as a command names it.
type place struct {
	coll string
	uuid []byte // nil: the command carries none
}

func placeOf(tok record.Token) (place, error) {
	if tok.Name == "" {
		return place{}, fmt.Errorf("token of kind %q has no name", tok.Kind)
	}
	p := place{coll: tok.Name}
	if tok.ID != "" {
		id, err := hex.DecodeString(tok.ID)
		if err != nil || len(id) != 16 {
			return place{}, fmt.Errorf("token of %s: identity is not 32 hexadecimal digits", tok.Name)
		}
		p.uuid = id
	}
	return p, nil
}

// appendCommand begins a command on a collection. The caller closes it with endDocument.
func appendCommand(dst []byte, verb string, p place) []byte {
	_, dst = bsoncore.AppendDocumentStart(dst)
	dst = bsoncore.AppendStringElement(dst, verb, p.coll)
	if p.uuid != nil {
		dst = bsoncore.AppendBinaryElement(dst, "collectionUUID", bson.TypeBinaryUUID, p.uuid)
	}
	return dst
}

// endDocument closes a document that began at start.
func endDocument(dst []byte, start int) []byte {
	dst = append(dst, 0)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}

// beginElement opens an embedded document or array. It also returns the offset of its length, for
// endDocument.
func beginElement(dst []byte, t bson.Type, key string) ([]byte, int) {
	dst = bsoncore.AppendHeader(dst, bsoncore.Type(t), key)
	return append(dst, 0, 0, 0, 0), len(dst)
}

func appendMajority(dst []byte) []byte {
	dst, start := beginElement(dst, bson.TypeEmbeddedDocument, "writeConcern")
	dst = bsoncore.AppendStringElement(dst, "w", "majority")
	return endDocument(dst, start)
}

func appendValueElement(dst []byte, key string, v bson.RawValue) []byte {
	dst = bsoncore.AppendHeader(dst, bsoncore.Type(v.Type), key)
	return append(dst, v.Value...)
}

// writeCommand gathers writes of one verb on one collection, in one or more raw commands within the
// server's limits.
type writeCommand struct {
	verb   string // insert, update, delete
	place  place
	parts  []*writePart
	bypass bool // skip the collection's validator
	single bool // outside a transaction: the command carries the write concern, unordered
}

type writePart struct {
	buf     *[]byte
	array   int // offset of the array's length
	owners  []int
	emptyTS bool
}

func (c *writeCommand) list() string {
	if c.verb == "insert" {
		return "documents"
	}
	return c.verb + "s"
}

// next makes room for one more write of about size bytes for the group owner. It returns the part
// to append the write's document to, with the element's header already written. Room for large
// documents grows in large steps, because small steps leave several times the command's size as
// garbage.
func (c *writeCommand) next(owner, size int) *writePart {
	var part *writePart
	if len(c.parts) > 0 {
		part = c.parts[len(c.parts)-1]
	}
	if part == nil || len(*part.buf)+size > maxCommandBytes {
		part = &writePart{buf: getBuffer()}
		b := appendCommand(*part.buf, c.verb, c.place)
		*part.buf, part.array = beginElement(b, bson.TypeArray, c.list())
		c.parts = append(c.parts, part)
	}
	// Grow to several times the size at once; append alone would grow too often.
	if b := *part.buf; size > largeWrite && cap(b)-len(b) < size+writeOverhead {
		*part.buf = append(make([]byte, 0, max(min(4*cap(b), maxCommandBytes), len(b)+size)+2*writeOverhead), b...)
	}
	*part.buf = appendIndexed(*part.buf, byte(bson.TypeEmbeddedDocument), len(part.owners))
	part.owners = append(part.owners, owner)
	return part
}

// finish closes a part and returns its bytes, which are valid until release.
func (c *writeCommand) finish(part *writePart) []byte {
	b := endDocument(*part.buf, part.array)
	if c.single {
		// Unordered, so that one refused document does not stop the others.
		b = bsoncore.AppendBooleanElement(b, "ordered", false)
		b = appendMajority(b)
	}
	if c.bypass {
		b = bsoncore.AppendBooleanElement(b, "bypassDocumentValidation", true)
	}
	if part.emptyTS {
		// Without it, the server would replace an empty timestamp by the time of the write.
		b = bsoncore.AppendBooleanElement(b, "bypassEmptyTsReplacement", true)
	}
	*part.buf = endDocument(b, 0)
	return *part.buf
}

func (c *writeCommand) release() {
	for _, part := range c.parts {
		putBuffer(part.buf)
	}
	c.parts = nil
}

// reply is one batch of a cursor.
type reply struct {
	docs []byte // the raw array
	id   int64  // of the cursor, 0 when it is exhausted
	at   bson.Timestamp
}

var errReply = errors.New("server's reply has no cursor")

func parseReply(raw bson.Raw) (reply, error) {
	cursor, ok := raw.Lookup("cursor").DocumentOK()
	if !ok {
		return reply{}, errReply
	}
	elems, err := cursor.Elements()
	if err != nil {
		return reply{}, fmt.Errorf("%w: %w", errReply, err)
	}
	var r reply
	for _, e := range elems {
		v := e.Value()
		switch e.Key() {
		case "firstBatch", "nextBatch":
			r.docs = v.Value
		case "id":
			// The last batch has id 0 and needs no killCursors.
			r.id, _ = v.Int64OK()
		case "atClusterTime":
			r.at.T, r.at.I, _ = v.TimestampOK()
		}
	}
	if r.docs == nil {
		return reply{}, errReply
	}
	return r, nil
}

// each calls yield for each document of a raw array. The bytes belong to the reply; yield must copy
// what it keeps.
func each(array []byte, yield func(doc []byte) error) error {
	if len(array) < 5 {
		return errReply
	}
	for rest := array[4:]; len(rest) > 0 && rest[0] != 0; {
		at := 1
		for at < len(rest) && rest[at] != 0 {
			at++
		}
		at++
		// Check the lengths, or a damaged reply would panic.
		if rest[0] != byte(bson.TypeEmbeddedDocument) || at+5 > len(rest) {
			return errReply
		}
		size := int(binary.LittleEndian.Uint32(rest[at:]))
		if size < 5 || size > len(rest)-at {
			return errReply
		}
		if err := yield(rest[at : at+size : at+size]); err != nil {
			return err
		}
		rest = rest[at+size:]
	}
	return nil
}

// appendIndexed appends the header of an array's element i.
func appendIndexed(dst []byte, t byte, i int) []byte {
	dst = append(dst, t)
	dst = strconv.AppendInt(dst, int64(i), 10)
	return append(dst, 0)
}

// noDeadline hides the deadline of a context from the driver, but still ends with it. The driver
// would turn the deadline into maxTimeMS, which a getMore refuses.
type noDeadline struct{ context.Context }

func (noDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// getMore returns the next batch of an open cursor. ctx must hold the session that opened the
// cursor.
func (n *Namespace) getMore(ctx context.Context, p place, id int64, batch int) (reply, error) {
	raw, err := n.run(noDeadline{ctx}, appendGetMore(nil, p, id, batch))
	if err != nil {
		return reply{}, err
	}
	return parseReply(raw)
}

func appendGetMore(dst []byte, p place, id int64, batch int) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = bsoncore.AppendInt64Element(dst, "getMore", id)
	dst = bsoncore.AppendStringElement(dst, "collection", p.coll)
	if batch > 0 {
		dst = bsoncore.AppendInt32Element(dst, "batchSize", int32(batch))
	}
	return endDocument(dst, start)
}
