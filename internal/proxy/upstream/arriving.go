package upstream

import (
	"errors"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/wiremessage"

	"dbcontroller.dev/internal/proxy/message"
)

// A reply to a getMore can have 16 MB. A proxy that reads all of it before it writes the first byte takes the time of
// the transfer twice, and moves the bytes through memory that no cache of the processor holds.

// Taker takes the batch of a large reply while it arrives.
type Taker interface {
	// Begin gets the lengths of the reply. It returns false if the reply must be whole first.
	Begin(n message.NextBatch) bool
	// Take gets the next bytes of the batch, and returns how many of them it has taken. If it has not taken all, it
	// gets no further ones, and Keep gets all that are left instead.
	Take(b []byte) int
	// Keep gets the end of the batch. The memory is the taker's.
	Keep(b []byte)
}

const (
	// leastTaken is the size from which a reply is passed on while it arrives. Smaller ones come with few reads.
	leastTaken = 256 << 10
	// step is the size of a read from the network. Such a buffer stays in the cache of a processor.
	step = 256 << 10
	// mostTail bounds what stands behind the batch. It is a few hundred bytes.
	mostTail = 4 << 10
)

// take reads the rest of the reply to a request after its header, and gives the batch to a taker. The body that it
// returns has no documents then. ok is false if nothing was read, because the reply must be whole first.
func (l *line) take(h message.Header, request []byte, rest int, to Taker) (m message.Message, ok bool, err error) {
	// A reply to another request may have the data of another user.
	if to == nil || rest < leastTaken || !answers(h.ReplyTo, request) {
		return m, false, nil
	}
	head, err := l.in.Peek(message.NextBatchSize)
	if err != nil {
		return m, false, unexpected(err)
	}
	n, ok := message.ReadNextBatch(h, rest, head)
	if !ok || n.Tail() > mostTail || !to.Begin(n) {
		return m, false, nil
	}
	if _, err := l.in.Discard(len(head)); err != nil {
		return m, true, err
	}
	if err := l.pass(n.Batch, to); err != nil {
		return m, true, err
	}
	tail := make([]byte, n.Tail())
	if _, err := io.ReadFull(l.in, tail); err != nil {
		return m, true, unexpected(err)
	}
	body, ok := n.WithoutBatch(tail)
	if !ok {
		return m, true, fmt.Errorf("%w: %w", message.ErrMalformed, errLengths)
	}
	return message.Message{ID: h.ID, ReplyTo: h.ReplyTo, Body: body}, true, nil
}

var errLengths = errors.New("the lengths in a reply do not fit each other")

// pass gives a batch to a taker.
func (l *line) pass(size int, to Taker) error {
	buffer := make([]byte, min(step, size))
	for size > 0 {
		n, err := l.in.Read(buffer[:min(len(buffer), size)])
		if err != nil {
			return unexpected(err)
		}
		size -= n
		taken := to.Take(buffer[:n])
		if taken == n {
			continue
		}
		left := message.Buffer(n - taken + size)
		copy(left, buffer[taken:n])
		if _, err := io.ReadFull(l.in, left[n-taken:]); err != nil {
			return unexpected(err)
		}
		to.Keep(left)
		return nil
	}
	return nil
}

// unexpected makes the end of a connection an error in the middle of a message.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// answers reports whether a reply is one to a request.
func answers(replyTo int32, request []byte) bool {
	_, id, _, _, _, ok := wiremessage.ReadHeader(request)
	return ok && replyTo == id
}
