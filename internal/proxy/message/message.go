// Package message reads and writes the messages between a MongoDB client and its server.
//
// It knows OP_MSG, and the OP_QUERY with which drivers begin a connection. Other operations are
// refused: servers since 5.1 do not know them either, but for OP_COMPRESSED. A client compresses only
// what the server offers in the handshake, and the proxy offers nothing.
package message

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/wiremessage"
)

// Sizes of messages, in bytes. MaxMessage is what servers announce as maxMessageSizeBytes.
const (
	headerSize = 16
	MaxMessage = 48_000_000
)

// Flags of an OP_MSG.
const (
	ChecksumPresent = uint32(wiremessage.ChecksumPresent)
	MoreToCome      = uint32(wiremessage.MoreToCome)
	ExhaustAllowed  = uint32(wiremessage.ExhaustAllowed)
)

// opQuery is the operation before OP_MSG.
const opQuery wiremessage.OpCode = 2004

// required are the flags that a receiver must understand, by the protocol.
const required = 0xffff

// Message is one message. Its parts are slices of the buffer that it was read into.
type Message struct {
	ID      int32 // of the message
	ReplyTo int32 // ID of the request that it answers; 0: a request
	Query   bool  // an OP_QUERY, whose answer is an OP_REPLY; Body has then no $db
	Flags   uint32
	Body    bsoncore.Document
	// Sequences are the documents that stand outside of the body, such as those of an insert.
	Sequences []Sequence
	// Database is the database of an OP_QUERY.
	Database string
}

// Sequence is a named list of documents.
type Sequence struct {
	Name string
	Docs []byte // documents, one after another
}

// Errors of a peer that does not speak the protocol. The connection cannot be used any longer.
var (
	ErrMalformed   = errors.New("malformed message")
	ErrUnsupported = errors.New("this operation of the wire protocol is not supported")
)

// ReadHeader reads a header. It returns the length of the rest of the message, and what to pass to
// Decode. io.EOF means that the peer has ended the connection between two messages.
func ReadHeader(r io.Reader, limit int) (h Header, rest int, err error) {
	var b [headerSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return h, 0, err
	}
	length, id, replyTo, op, _, _ := wiremessage.ReadHeader(b[:])
	h = Header{id, replyTo, op}
	if length < headerSize || int(length) > limit {
		return h, 0, fmt.Errorf("%w: its length is %d, and at most %d are allowed", ErrMalformed, length, limit)
	}
	return h, int(length) - headerSize, nil
}

// Header is the beginning of a message.
type Header struct {
	ID, ReplyTo int32
	op          wiremessage.OpCode
}

// castagnoli is the polynomial of the checksum.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Decode parses a message of which b is the part after the header.
func Decode(h Header, b []byte) (m Message, err error) {
	m = Message{ID: h.ID, ReplyTo: h.ReplyTo}
	switch h.op {
	case wiremessage.OpMsg:
		err = m.decodeMsg(h, b)
	case opQuery:
		err = m.decodeQuery(b)
	default:
		return m, fmt.Errorf("%w: %v", ErrUnsupported, h.op)
	}
	if err != nil {
		return m, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return m, nil
}

func (m *Message) decodeMsg(h Header, b []byte) error {
	flags, rest, ok := wiremessage.ReadMsgFlags(b)
	if !ok {
		return errors.New("no flags")
	}
	m.Flags = uint32(flags)
	if unknown := m.Flags & required &^ (ChecksumPresent | MoreToCome); unknown != 0 {
		return fmt.Errorf("unknown flags %#x", unknown)
	}
	if m.Flags&ChecksumPresent != 0 {
		if len(rest) < 4 {
			return errors.New("no checksum")
		}
		sum := binary.LittleEndian.Uint32(rest[len(rest)-4:])
		rest = rest[:len(rest)-4]
		if header := h.bytes(len(b)); crc32.Update(crc32.Checksum(header, castagnoli), castagnoli, b[:len(b)-4]) != sum {
			return errors.New("wrong checksum")
		}
		m.Flags &^= ChecksumPresent // a sum of the former bytes is of no use
	}
	for len(rest) > 0 {
		kind := wiremessage.SectionType(rest[0])
		rest = rest[1:]
		switch kind {
		case wiremessage.SingleDocument:
			doc, after, ok := document(rest)
			if !ok || m.Body != nil {
				return errors.New("not one body")
			}
			m.Body, rest = doc, after
		case wiremessage.DocumentSequence:
			name, docs, after, ok := sequence(rest)
			if !ok {
				return errors.New("a bad sequence of documents")
			}
			m.Sequences = append(m.Sequences, Sequence{name, docs})
			rest = after
		default:
			return fmt.Errorf("unknown section %d", kind)
		}
	}
	if m.Body == nil {
		return errors.New("no body")
	}
	return nil
}

// sequence reads a sequence and checks that its documents fill it.
func sequence(b []byte) (name string, docs, rest []byte, ok bool) {
	if len(b) < 4 {
		return "", nil, nil, false
	}
	size := int(int32(binary.LittleEndian.Uint32(b)))
	if size < 5 || size > len(b) {
		return "", nil, nil, false
	}
	rest, b = b[size:], b[4:size]
	title, docs, ok := bytes.Cut(b, []byte{0})
	if !ok {
		return "", nil, nil, false
	}
	name = string(title)
	for left := docs; len(left) > 0; {
		_, after, ok := document(left)
		if !ok {
			return "", nil, nil, false
		}
		left = after
	}
	return name, docs, rest, true
}

// document splits a document off. It checks the length and the end, not the elements.
func document(b []byte) (doc bsoncore.Document, rest []byte, ok bool) {
	const least = 5
	if len(b) < least {
		return nil, nil, false
	}
	size := int(int32(binary.LittleEndian.Uint32(b)))
	if size < least || size > len(b) || b[size-1] != 0 {
		return nil, nil, false
	}
	return bsoncore.Document(b[:size]), b[size:], true
}

// decodeQuery reads the command in an OP_QUERY: flags, namespace, two numbers, and the command.
func (m *Message) decodeQuery(b []byte) error {
	m.Query = true
	const number = 4
	if len(b) < number {
		return errors.New("no flags")
	}
	name, rest, ok := bytes.Cut(b[number:], []byte{0})
	if !ok || len(rest) < 2*number {
		return errors.New("no namespace")
	}
	database, ok := bytes.CutSuffix(name, []byte(".$cmd"))
	if !ok || len(database) == 0 {
		return fmt.Errorf("%w: a query that is no command", ErrUnsupported)
	}
	m.Database = string(database)
	doc, _, ok := document(rest[2*number:])
	if !ok {
		return errors.New("no body")
	}
	m.Body = doc
	return nil
}

// bytes returns the header of a message with so many bytes after it.
func (h Header) bytes(rest int) []byte {
	return wiremessage.AppendHeader(nil, int32(headerSize+rest), h.ID, h.ReplyTo, h.op)
}

// Append appends the message to dst. A message that answers an OP_QUERY becomes an OP_REPLY.
func (m Message) Append(dst []byte) []byte {
	dst = append(m.AppendHead(dst), m.Body...)
	for _, s := range m.Sequences {
		dst = append(dst, byte(wiremessage.DocumentSequence))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(s.size()))
		dst = append(append(append(dst, s.Name...), 0), s.Docs...)
	}
	return dst
}

// AppendHead appends what comes before the body.
func (m Message) AppendHead(dst []byte) []byte {
	start := len(dst)
	if m.Query {
		_, dst = wiremessage.AppendHeaderStart(dst, m.ID, m.ReplyTo, wiremessage.OpReply)
		dst = wiremessage.AppendReplyFlags(dst, 0)
		dst = wiremessage.AppendReplyCursorID(dst, 0)
		dst = wiremessage.AppendReplyStartingFrom(dst, 0)
		dst = wiremessage.AppendReplyNumberReturned(dst, 1)
	} else {
		_, dst = wiremessage.AppendHeaderStart(dst, m.ID, m.ReplyTo, wiremessage.OpMsg)
		dst = wiremessage.AppendMsgFlags(dst, wiremessage.MsgFlag(m.Flags))
		dst = append(dst, byte(wiremessage.SingleDocument))
	}
	length := len(dst) - start + len(m.Body)
	for _, s := range m.Sequences {
		length += 1 + s.size()
	}
	binary.LittleEndian.PutUint32(dst[start:], uint32(length))
	return dst
}

// size returns the bytes of a sequence after its kind.
func (s Sequence) size() int { return 4 + len(s.Name) + 1 + len(s.Docs) }

// Parse parses a whole message with its header.
func Parse(b []byte) (Message, error) {
	length, id, replyTo, op, rest, ok := wiremessage.ReadHeader(b)
	if !ok || int(length) != len(b) {
		return Message{}, fmt.Errorf("%w: its length is %d, and it has %d bytes", ErrMalformed, length, len(b))
	}
	return Decode(Header{id, replyTo, op}, rest)
}
