package message

import (
	"encoding/binary"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/wiremessage"
)

// A server writes the reply to a getMore in one order: the cursor, in it the batch, then the rest of the cursor, then
// the rest of the reply. The lengths of all these stand before the batch. So a reader knows the length of each part
// when the first bytes have come.

// NextBatch is the beginning of a reply to a getMore: the lengths of its parts, in bytes.
type NextBatch struct {
	Batch  int // the documents of the batch
	Cursor int // the elements of the cursor behind the batch
	Rest   int // the elements of the reply behind the cursor
}

// What stands before the documents of a batch, and the type of each document of the protocol.
const (
	cursorKey = "\x03cursor\x00"
	batchKey  = "\x04nextBatch\x00"
	length    = 4
	// NextBatchSize is the length of what stands between the header of a message and the documents of its batch.
	NextBatchSize = 4 + 1 + length + len(cursorKey) + length + len(batchKey) + length
)

// ReadNextBatch reads the beginning of a message, of which b is the part after the header and rest its length. ok is
// false if anything is not as in a usual reply to a getMore, or if the lengths do not fit each other.
func ReadNextBatch(h Header, rest int, b []byte) (n NextBatch, ok bool) {
	if h.op != wiremessage.OpMsg || len(b) < NextBatchSize || rest < NextBatchSize {
		return n, false
	}
	flags, kind, b := binary.LittleEndian.Uint32(b), b[4], b[5:]
	if flags != 0 || kind != byte(wiremessage.SingleDocument) {
		return n, false
	}
	next := func(key string) int {
		size := int(int32(binary.LittleEndian.Uint32(b)))
		b = b[length:]
		if string(b[:len(key)]) != key {
			return -1
		}
		b = b[len(key):]
		return size
	}
	body, cursor, batch := next(cursorKey), next(batchKey), next("")
	// A document ends with a zero.
	n.Rest = body - length - len(cursorKey) - cursor - 1
	n.Cursor = cursor - length - len(batchKey) - batch - 1
	n.Batch = batch - length - 1
	ok = body == rest-5 && cursor > 0 && batch > 0 && n.Rest >= 0 && n.Cursor >= 0 && n.Batch >= 0
	return n, ok
}

// Tail returns the length of what stands behind the documents.
func (n NextBatch) Tail() int { return 1 + n.Cursor + 1 + n.Rest + 1 }

// AppendNextBatch appends a message up to the documents of its batch.
func (m Message) AppendNextBatch(dst []byte, n NextBatch) []byte {
	batch := length + n.Batch + 1
	cursor := length + len(batchKey) + batch + n.Cursor + 1
	body := length + len(cursorKey) + cursor + n.Rest + 1
	dst = wiremessage.AppendHeader(dst, int32(headerSize+5+body), m.ID, m.ReplyTo, wiremessage.OpMsg)
	dst = append(wiremessage.AppendMsgFlags(dst, 0), byte(wiremessage.SingleDocument))
	dst = append(binary.LittleEndian.AppendUint32(dst, uint32(body)), cursorKey...)
	dst = append(binary.LittleEndian.AppendUint32(dst, uint32(cursor)), batchKey...)
	return binary.LittleEndian.AppendUint32(dst, uint32(batch))
}

// WithoutBatch returns the body of a reply as if its batch had no documents. tail is what stands behind them.
func (n NextBatch) WithoutBatch(tail []byte) (bsoncore.Document, bool) {
	if len(tail) != n.Tail() || tail[0] != 0 || tail[1+n.Cursor] != 0 || tail[len(tail)-1] != 0 {
		return nil, false
	}
	n.Batch = 0
	head := Message{}.AppendNextBatch(nil, n)
	return append(head[headerSize+5:], tail...), true
}

// TailOf returns what stands behind the documents in the body of a reply whose batch has none, and the lengths of its
// parts.
func TailOf(body bsoncore.Document) (n NextBatch, tail []byte, ok bool) {
	m := Message{Body: body}.Append(nil)
	n, ok = ReadNextBatch(Header{op: wiremessage.OpMsg}, len(m)-headerSize, m[headerSize:])
	if !ok || n.Batch != 0 {
		return n, nil, false
	}
	return n, m[headerSize+NextBatchSize:], true
}
