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

// mustMarshal marshals literals of this package. It panics on an error.
func mustMarshal(d bson.D) bson.Raw {
	b, err := bson.Marshal(d)
	if err != nil {
		panic(err)
	}
	return b
}
