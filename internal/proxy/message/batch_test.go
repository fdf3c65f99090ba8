package message

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/wiremessage"
)

func nextBatch(docs ...bsoncore.Document) []byte {
	batch := bsoncore.NewArrayBuilder()
	for _, d := range docs {
		batch.AppendDocument(d)
	}
	cursor := bsoncore.NewDocumentBuilder().AppendArray("nextBatch", batch.Build()).AppendInt64("id", 7).AppendString("ns", "a.b").Build()
	body := bsoncore.NewDocumentBuilder().AppendDocument("cursor", cursor).AppendDouble("ok", 1).Build()
	return Message{ID: 3, ReplyTo: 4, Body: body}.Append(nil)
}

// TestNextBatch: the parts of a reply, apart and together again.
func TestNextBatch(t *testing.T) {
	b := nextBatch(bsoncore.NewDocumentBuilder().AppendInt32("_id", 1).Build(), bsoncore.NewDocumentBuilder().Build())
	h := Header{3, 4, wiremessage.OpMsg}
	n, ok := ReadNextBatch(h, len(b)-headerSize, b[headerSize:][:NextBatchSize])
	if want := (NextBatch{Batch: 3 + 14 + 3 + 5, Cursor: 12 + 12, Rest: 12}); !ok || n != want {
		t.Fatalf("%+v, %v", n, ok)
	}
	head := Message{ID: 3, ReplyTo: 4}.AppendNextBatch(nil, n)
	tail := b[len(b)-n.Tail():]
	if got := slices.Concat(head, b[len(head):][:n.Batch], tail); !slices.Equal(got, b) {
		t.Errorf("%q, want %q", got, b)
	}
	body, ok := n.WithoutBatch(tail)
	if want := nextBatch(); !ok || !slices.Equal(body, want[headerSize+5:]) {
		t.Fatalf("%s, %v", body, ok)
	}
	got, end, ok := TailOf(body)
	got.Batch = n.Batch
	if !ok || got != n || !slices.Equal(end, tail) {
		t.Errorf("%+v, %q, %v", got, end, ok)
	}
}

// TestLyingNextBatch: no other beginning is taken for that of a batch, and no length leads beyond the message.
func TestLyingNextBatch(t *testing.T) {
	whole := nextBatch(bsoncore.NewDocumentBuilder().AppendInt32("_id", 1).Build())
	h := Header{3, 4, wiremessage.OpMsg}
	rest, b := len(whole)-headerSize, whole[headerSize:][:NextBatchSize]
	for i := range b {
		if _, ok := ReadNextBatch(h, rest, b[:i]); ok {
			t.Errorf("the first %d bytes were enough", i)
		}
		for _, x := range []byte{0, 1, 0x7f, 0x80, 0xff, b[i] + 1, b[i] - 1} {
			other := slices.Clone(b)
			other[i] = x
			n, ok := ReadNextBatch(h, rest, other)
			if ok && (n.Batch < 0 || n.Cursor < 0 || n.Rest < 0 || NextBatchSize+n.Batch+n.Tail() != rest) {
				t.Errorf("byte %d is %#x: %+v", i, x, n)
			}
			if changes := x != b[i]; ok && changes && !slices.Contains([]int{17, 32}, i) { // the lowest bytes of the inner lengths
				t.Errorf("byte %d is %#x: accepted", i, x)
			}
		}
	}
	for at, key := range map[int]string{5: "body", 17: "cursor", 32: "batch"} {
		for _, x := range []int32{math.MinInt32, -1, 0, 1, 4, MaxMessage, math.MaxInt32} {
			other := slices.Clone(b)
			binary.LittleEndian.PutUint32(other[at:], uint32(x))
			if n, ok := ReadNextBatch(h, rest, other); ok {
				t.Errorf("the length of the %s is %d: %+v", key, x, n)
			}
		}
	}
	for _, x := range []int{0, NextBatchSize, rest - 1, rest + 1} {
		if n, ok := ReadNextBatch(h, x, b); ok {
			t.Errorf("the length is %d: %+v", x, n)
		}
	}
	if _, ok := ReadNextBatch(Header{3, 4, opQuery}, rest, b); ok {
		t.Error("another operation")
	}
	n, _ := ReadNextBatch(h, rest, b)
	tail := whole[len(whole)-n.Tail():]
	for _, i := range []int{0, 1 + n.Cursor, len(tail) - 1} {
		other := slices.Clone(tail)
		other[i] = 1
		if _, ok := n.WithoutBatch(other); ok {
			t.Errorf("no zero at %d", i)
		}
	}
}
