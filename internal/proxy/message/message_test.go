package message_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/wiremessage"

	"dbcontroller.dev/internal/proxy/message"
)

func body(t testing.TB, d bson.D) []byte {
	t.Helper()
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func insert(t testing.TB) message.Message {
	t.Helper()
	docs := append(body(t, bson.D{{Key: "_id", Value: 1}}), body(t, bson.D{{Key: "_id", Value: 2}})...)
	return message.Message{ID: 7, ReplyTo: 3, Body: body(t, bson.D{{Key: "insert", Value: "c"}}), Sequences: []message.Sequence{{Name: "documents", Docs: docs}}}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	sent := insert(t)
	got, err := message.Parse(sent.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != 7 || got.ReplyTo != 3 || !bytes.Equal(got.Body, sent.Body) || len(got.Sequences) != 1 || got.Sequences[0].Name != "documents" || !bytes.Equal(got.Sequences[0].Docs, sent.Sequences[0].Docs) {
		t.Errorf("got %+v, want %+v", got, sent)
	}
}

// TestChecksum: a message whose checksum is right counts, one of damaged bytes does not.
func TestChecksum(t *testing.T) {
	t.Parallel()
	m := insert(t)
	m.Flags = message.ChecksumPresent
	b := m.Append(nil)
	binary.LittleEndian.PutUint32(b, uint32(len(b)+4))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	if got, err := message.Parse(b); err != nil || got.Flags != 0 {
		t.Errorf("flags %#x, %v", got.Flags, err)
	}
	b[40] ^= 1
	if _, err := message.Parse(b); !errors.Is(err, message.ErrMalformed) {
		t.Errorf("a damaged message: %v", err)
	}
}

// TestHandshake: old drivers begin with an OP_QUERY, and expect an OP_REPLY.
func TestHandshake(t *testing.T) {
	t.Parallel()
	const query = 2004
	_, b := wiremessage.AppendHeaderStart(nil, 5, 0, query)
	b = append(b, 0, 0, 0, 0)                     // flags
	b = append(b, "admin.$cmd\x00"...)            // namespace
	b = append(b, 0, 0, 0, 0, 255, 255, 255, 255) // to skip and to return
	b = append(b, body(t, bson.D{{Key: "isMaster", Value: 1}})...)
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	m, err := message.Parse(b)
	if err != nil || !m.Query || m.Database != "admin" {
		t.Fatalf("%+v, %v", m, err)
	}
	out := message.Message{ID: 1, ReplyTo: m.ID, Query: true, Body: body(t, bson.D{{Key: "ok", Value: 1}})}.Append(nil)
	_, _, to, op, _, _ := wiremessage.ReadHeader(out)
	if op != wiremessage.OpReply || to != 5 {
		t.Errorf("the answer is %v to %d", op, to)
	}
}

// TestMalformed: whatever a peer sends that is no message is an error, and takes no memory.
func TestMalformed(t *testing.T) {
	t.Parallel()
	good := insert(t).Append(nil)
	change := func(at int, to ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], to)
		return b
	}
	end := len(good) - 1
	for name, b := range map[string][]byte{
		"an unknown flag":                   change(16, 0x80),
		"an unknown section":                change(20, 9),
		"a body that is longer":             change(21, 0xff, 0xff, 0xff, 0x7f),
		"a body with a negative length":     change(21, 0xff, 0xff, 0xff, 0xff),
		"a body without an end":             change(21, 5, 0, 0, 0, 1),
		"a document without an end":         change(end, 1),
		"an operation that is compressed":   change(12, 0xdc, 0x07),
		"an operation of before":            change(12, 0xd2, 0x07),
		"no body":                           good[:20],
		"a sequence that is cut off":        good[:len(good)-20],
		"two bodies":                        append(bytes.Clone(good), good[20:40]...),
		"a sequence with a negative length": change(20+1+int(binary.LittleEndian.Uint32(good[21:]))+1, 0xff, 0xff, 0xff, 0xff),
	} {
		binary.LittleEndian.PutUint32(b, uint32(len(b)))
		if m, err := message.Parse(b); !errors.Is(err, message.ErrMalformed) && !errors.Is(err, message.ErrUnsupported) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	for name, tc := range map[string]struct {
		header []byte
		want   error
	}{
		"nothing":           {nil, io.EOF},
		"half a header":     {good[:9], io.ErrUnexpectedEOF},
		"a length bomb":     {change(0, 0xff, 0xff, 0xff, 0x7f), message.ErrMalformed},
		"a negative length": {change(0, 0xff, 0xff, 0xff, 0xff), message.ErrMalformed},
		"a short length":    {change(0, 15, 0, 0, 0), message.ErrMalformed},
	} {
		if _, _, err := message.ReadHeader(bytes.NewReader(tc.header), message.MaxMessage); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// FuzzParse: no bytes end the proxy, and what is parsed can be sent on.
func FuzzParse(f *testing.F) {
	f.Add(insert(f).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := message.Parse(b)
		if err != nil || m.Query {
			return
		}
		again, err := message.Parse(m.Append(nil))
		if err != nil || !bytes.Equal(again.Body, m.Body) || len(again.Sequences) != len(m.Sequences) {
			t.Errorf("%x became %+v, %v", b, again, err)
		}
	})
}
