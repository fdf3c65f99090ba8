package wire

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/record"
)

// MaxCommandBytes bounds the documents of one command. The server takes messages of 16 MiB and 16
// KiB. One document of 16 MiB always fits alone.
const MaxCommandBytes = 15 << 20

// buffers holds command bodies for reuse. This is safe because the driver copies what it sends.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}

// GetBuffer returns an empty buffer of the pool.
func GetBuffer() *[]byte {
	b := buffers.Get().(*[]byte)
	*b = (*b)[:0]
	return b
}

// PutBuffer returns a buffer to the pool. It drops huge ones, so that one huge document does not
// stay in memory.
func PutBuffer(b *[]byte) {
	if cap(*b) <= 4<<20 {
		buffers.Put(b)
	}
}

// Place is a collection as a command names it.
type Place struct {
	Coll string
	uuid []byte // nil: the command carries none
}

// PlaceOf returns the place of a token.
func PlaceOf(tok record.Token) (Place, error) {
	if tok.Name == "" {
		return Place{}, fmt.Errorf("token of kind %q has no name", tok.Kind)
	}
	p := Place{Coll: tok.Name}
	if tok.ID != "" {
		id, err := hex.DecodeString(tok.ID)
		if err != nil || len(id) != 16 {
			return Place{}, fmt.Errorf("token of %s: identity is not 32 hexadecimal digits", tok.Name)
		}
		p.uuid = id
	}
	return p, nil
}

// AppendNamespace appends the elements that name a collection in a bulkWrite.
func AppendNamespace(dst []byte, database string, p Place) []byte {
	dst = bsoncore.AppendStringElement(dst, "ns", database+"."+p.Coll)
	return appendUUID(dst, p)
}

func appendUUID(dst []byte, p Place) []byte {
	if p.uuid == nil {
		return dst
	}
	return bsoncore.AppendBinaryElement(dst, "collectionUUID", bson.TypeBinaryUUID, p.uuid)
}

// AppendCommand begins a command on a collection. The caller closes it with EndDocument.
func AppendCommand(dst []byte, verb string, p Place) []byte {
	_, dst = bsoncore.AppendDocumentStart(dst)
	return appendUUID(bsoncore.AppendStringElement(dst, verb, p.Coll), p)
}

// EndDocument closes a document that began at start.
func EndDocument(dst []byte, start int) []byte {
	dst = append(dst, 0)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}

// BeginElement opens an embedded document or array. It also returns the offset of its length, for
// EndDocument.
func BeginElement(dst []byte, t bson.Type, key string) ([]byte, int) {
	dst = bsoncore.AppendHeader(dst, bsoncore.Type(t), key)
	return append(dst, 0, 0, 0, 0), len(dst)
}

// AppendMajority appends the write concern majority.
func AppendMajority(dst []byte) []byte {
	dst, start := BeginElement(dst, bson.TypeEmbeddedDocument, "writeConcern")
	dst = bsoncore.AppendStringElement(dst, "w", "majority")
	return EndDocument(dst, start)
}

// AppendValueElement appends an element with a raw value.
func AppendValueElement(dst []byte, key string, v bson.RawValue) []byte {
	dst = bsoncore.AppendHeader(dst, bsoncore.Type(v.Type), key)
	return append(dst, v.Value...)
}

// Reply is one batch of a cursor.
type Reply struct {
	Docs []byte // the raw array
	ID   int64  // of the cursor, 0 when it is exhausted
	At   bson.Timestamp
}

var errReply = errors.New("server's reply has no cursor")

// ParseReply returns the batch in a reply.
func ParseReply(raw bson.Raw) (Reply, error) {
	cursor, ok := raw.Lookup("cursor").DocumentOK()
	if !ok {
		return Reply{}, errReply
	}
	elems, err := cursor.Elements()
	if err != nil {
		return Reply{}, fmt.Errorf("%w: %w", errReply, err)
	}
	var r Reply
	for _, e := range elems {
		v := e.Value()
		switch e.Key() {
		case "firstBatch", "nextBatch":
			r.Docs = v.Value
		case "id":
			// The last batch has id 0 and needs no killCursors.
			r.ID, _ = v.Int64OK()
		case "atClusterTime":
			r.At.T, r.At.I, _ = v.TimestampOK()
		}
	}
	if r.Docs == nil {
		return Reply{}, errReply
	}
	return r, nil
}

// Each calls yield for each document of a raw array. The bytes belong to the reply; yield must copy
// what it keeps.
func Each(array []byte, yield func(doc []byte) error) error {
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

// First returns the first document of a reply's batch, nil if the batch is empty.
func First(raw bson.Raw) (doc bson.Raw, err error) {
	r, err := ParseReply(raw)
	if err != nil {
		return nil, err
	}
	// A damaged batch is an error. It must not look like the absence of the document.
	err = Each(r.Docs, func(next []byte) error {
		if doc == nil {
			doc = next
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return doc, nil
}

// AppendIndexed appends the header of an array's element i.
func AppendIndexed(dst []byte, t byte, i int) []byte {
	dst = append(dst, t)
	dst = strconv.AppendInt(dst, int64(i), 10)
	return append(dst, 0)
}

// BeginIndexed is BeginElement for the element i of an array.
func BeginIndexed(dst []byte, t bson.Type, i int) ([]byte, int) {
	dst = AppendIndexed(dst, byte(t), i)
	return append(dst, 0, 0, 0, 0), len(dst)
}

// AppendGetMore appends the command that reads on from a cursor.
func AppendGetMore(dst []byte, p Place, id int64, batch int) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = bsoncore.AppendInt64Element(dst, "getMore", id)
	dst = bsoncore.AppendStringElement(dst, "collection", p.Coll)
	if batch > 0 {
		dst = bsoncore.AppendInt32Element(dst, "batchSize", int32(batch))
	}
	return EndDocument(dst, start)
}

// MustMarshal marshals literals of this package. It panics on an error.
func MustMarshal(d bson.D) bson.Raw {
	b, err := bson.Marshal(d)
	if err != nil {
		panic(err)
	}
	return b
}
