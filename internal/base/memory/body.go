package memory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/refusal"
)

// Full returns the answer to a request whose message has no room. possible means that a retry may
// find it. Connect sends it to the client unchanged.
func Full(possible bool) *connect.Error {
	if possible {
		return refusal.New(refusal.Busy, ErrNoRoom)
	}
	return connect.NewError(connect.CodeResourceExhausted, errors.New("the request is larger than the server can hold for one request: send less"))
}

// Account is the part of a request's memory that a Body counts in.
type Account interface {
	// Set changes the number of bytes. Without room it changes nothing and returns false.
	Set(bytes int64) bool
	// Possible reports whether Set could ever succeed.
	Possible(bytes int64) bool
}

// Body is a request's body that counts what its messages take in memory, before its reader gets
// them: the reader decompresses and decodes them at once.
//
// A message counts limits.BodyCopies times its size. A compressed message counts that often both as
// sent and decompressed. For gzip, Body decompresses the message once more to measure it.
//
// A body of gRPC, gRPC-Web or a Connect stream has many messages. Their buffers count once, for the
// largest one so far, because a decoder reads one message at a time. The messages count until the
// next but one comes: a reader still holds the former message while it waits for the next one. So a
// stream of any length has room as long as its largest message has.
//
// Read belongs to one goroutine at a time. Settle and End may be called at any time.
type Body struct {
	from     io.ReadCloser
	most     int64 // maximum of a message, as sent and decompressed
	framed   bool  // each message has a prefix
	encoding encoding

	// Of the reader.
	pending []byte // counted bytes that were not read yet
	left    int64  // bytes that the current message still has
	err     error  // returned after pending

	mu      sync.Mutex
	account Account
	message int64 // the current message
	former  int64 // the message before it
	largest int64
	settled bool // only messages count
	ended   bool
}

// NewBody returns the body of a request with that header. most is the maximum size of a message, as
// sent and decompressed. Read fails with Full without room, and with *http.MaxBytesError at a prefix
// of a message that is too large.
func NewBody(from io.ReadCloser, header http.Header, account Account, most int64) *Body {
	var names []string
	for _, name := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
		names = append(names, header.Values(name)...)
	}
	b := &Body{from: from, account: account, most: most, framed: Framed(header), encoding: encodingOf(names)}
	if !b.framed {
		b.left = math.MaxInt64
	}
	return b
}

// Framed reports whether a body with that header consists of messages with a prefix: a byte of flags
// and four of the length.
func Framed(header http.Header) bool {
	kind := strings.ToLower(strings.TrimSpace(header.Get("Content-Type")))
	return strings.HasPrefix(kind, "application/grpc") || strings.HasPrefix(kind, "application/connect+")
}

// Between reports whether the next Read waits for another message.
func (b *Body) Between() bool {
	return b.framed && len(b.pending) == 0 && b.left == 0 && b.err == nil
}

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	switch {
	case len(b.pending) > 0 || b.err != nil:
	case b.framed && b.left == 0:
		b.next()
	case !b.framed && b.encoding == gzipped:
		b.whole(nil, math.MaxInt64)
	}
	if len(b.pending) > 0 {
		n := copy(p, b.pending)
		if b.pending = b.pending[n:]; len(b.pending) == 0 {
			b.pending = nil // a long stream must not keep its first message
		}
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := received{b}.Read(p)
	b.err = err
	if b.framed {
		b.left -= int64(n)
	}
	return n, err
}

// next receives the prefix of the next message, and all of a message in gzip.
func (b *Body) next() {
	prefix := make([]byte, 5)
	n, err := io.ReadFull(b.from, prefix)
	if n > 0 {
		b.begin()
		if full := b.count(int64(n)); full != nil {
			b.err = full
			return
		}
	}
	b.pending = prefix[:n]
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = io.EOF // the reader makes its own error of it
		}
		b.err = err
		return
	}
	size := int64(binary.BigEndian.Uint32(prefix[1:]))
	const compressed = 1
	switch {
	case size > b.most:
		b.pending, b.err = nil, &http.MaxBytesError{Limit: b.most}
	case prefix[0]&compressed != 0 && b.encoding == gzipped:
		b.whole(prefix, size)
	default:
		b.left = size
		if prefix[0]&compressed != 0 && b.encoding == unknown && size > 0 {
			b.add(b.most)
		}
	}
}

// whole receives a message in gzip of at most size bytes, and measures it. prefix precedes it.
func (b *Body) whole(prefix []byte, size int64) {
	var all bytes.Buffer
	all.Write(prefix)
	_, err := io.CopyN(&all, received{b}, size)
	if err != nil && !errors.Is(err, io.EOF) {
		b.pending, b.err = nil, err
		return
	}
	b.pending, b.err = all.Bytes(), err
	if err := b.count(decompressed(all.Bytes()[len(prefix):], b.most)); err != nil {
		b.pending, b.err = nil, err
	}
}

// received reads bytes as sent, and counts them.
type received struct{ *Body }

func (r received) Read(p []byte) (int, error) {
	b := r.Body
	n, err := b.from.Read(p)
	if n == 0 {
		return 0, err
	}
	sent := int64(n)
	// One byte may become as much as any message. The prefix of a message has counted that already.
	if !b.framed && b.encoding == unknown && b.size() == 0 {
		sent += b.most
	}
	if full := b.count(sent); full != nil {
		return 0, full
	}
	return n, err
}

// Close implements io.Closer.
func (b *Body) Close() error { return b.from.Close() }

// begin starts to count another message.
func (b *Body) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.former, b.message = b.message, 0
	b.set() // less than before, which always fits
}

func (b *Body) size() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.message
}

func (b *Body) add(bytes int64) {
	if err := b.count(bytes); err != nil {
		b.pending, b.err = nil, err
	}
}

// count adds bytes to the current message, or returns the error of a reader without room.
func (b *Body) count(bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	message, largest := b.message, b.largest
	b.message += bytes
	b.largest = max(b.largest, b.message)
	if !b.set() {
		possible := !b.ended && b.account.Possible(b.bytes())
		b.message, b.largest = message, largest
		return Full(possible)
	}
	return nil
}

// bytes returns the memory of the body. The caller holds mu.
func (b *Body) bytes() int64 {
	if b.settled {
		return b.message + b.former
	}
	return (limits.BodyCopies-1)*b.largest + b.message + b.former
}

func (b *Body) set() bool { return !b.ended && b.account.Set(b.bytes()) }

// Settle gives back the buffers of a body with prefixes. Call it at the end of the body, when a
// decoder has finished with its last message.
func (b *Body) Settle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.framed {
		b.settled = true
		b.set()
	}
}

// End gives back everything.
func (b *Body) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.account.Set(0)
		b.ended = true
	}
}

// encoding is how messages are compressed.
type encoding int

const (
	plain encoding = iota
	gzipped
	unknown
)

// encodingOf returns the encoding that takes the most memory.
func encodingOf(names []string) encoding {
	out := plain
	for _, name := range names {
		switch name {
		case "", "identity":
		case "gzip":
			out = max(out, gzipped)
		default:
			out = unknown
		}
	}
	return out
}

// Decoded returns the size that a message gets when a reader decompresses it, or 0 if it does not.
// encodings are the names of its compressions, and most is the maximum of the size.
func Decoded(data []byte, most int64, encodings ...string) int64 {
	switch encodingOf(encodings) {
	case gzipped:
		return decompressed(data, most)
	case unknown:
		return most
	case plain:
	}
	return 0
}
