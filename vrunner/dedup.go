package vrunner

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/internal/base/memory"
)

// digest identifies the content of a message. The probability of a collision is negligible.
type digest [16]byte

// told remembers the messages that one client of a watch has received: for each of its records, the
// digest of the latest one. Past max names, or without memory for them, it forgets everything for
// good.
type told struct {
	max      int
	bytes    int          // total length of the names in latest
	held     *memory.Held // counts latest and unseen
	overflow bool
	latest   map[string]digest
	// unseen holds the records of latest that a repeated initial state has not named yet. It is nil
	// outside of that.
	unseen map[string]struct{}
}

const (
	// nameBytes is the longest average length of a name, in bytes.
	nameBytes = 256
	// entryBytes is the approximate size of a map entry without its name.
	entryBytes = 100
)

func (t *told) forget(name string) {
	if _, known := t.latest[name]; known {
		t.bytes -= len(name)
		delete(t.latest, name)
		t.held.Set(t.size(0))
	}
}

// size returns the approximate memory, in bytes, after that many more names.
func (t *told) size(more int) int64 { return int64(t.bytes + entryBytes*(len(t.latest)+more)) }

// restart prepares for another initial state.
func (t *told) restart() {
	t.unseen = make(map[string]struct{}, len(t.latest))
	for name := range t.latest {
		t.unseen[name] = struct{}{}
	}
}

// put reports whether the client needs a message, and remembers it.
func (t *told) put(name string, message any) (news bool, err error) {
	// Nothing is known of the client's state, so it gets every message.
	if t.overflow {
		return true, nil
	}
	delete(t.unseen, name)
	m, ok := message.(proto.Message)
	if !ok {
		return false, fmt.Errorf("watch: %T is no protobuf message", message)
	}
	// Equal messages must have equal bytes, or the client gets the same record twice.
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return false, fmt.Errorf("watch: %w", err)
	}
	sum := sha256.Sum256(raw)
	now := digest(sum[:len(digest{})])
	before, known := t.latest[name]
	if known && before == now {
		return false, nil
	}
	if !known {
		t.bytes += len(name)
	}
	// A watch without remembered names works until the next flip, so their memory is optional.
	if !known && (len(t.latest) >= t.max || t.bytes > nameBytes*t.max || !t.held.SetSpare(t.size(1))) {
		t.overflow, t.latest, t.unseen = true, nil, nil
		t.held.Set(0)
		return true, nil
	}
	if t.latest == nil {
		t.latest = map[string]digest{}
	}
	t.latest[name] = now
	return true, nil
}

// remove reports whether the client has a deleted record, and forgets it.
func (t *told) remove(name string) bool {
	if t.overflow {
		return true
	}
	_, known := t.latest[name]
	t.forget(name)
	delete(t.unseen, name)
	return known
}

// gone returns, in order, the records that the client has and that a repeated initial state did not
// name: they were deleted. It forgets them.
func (t *told) gone() []string {
	var names []string
	for name := range t.unseen {
		names = append(names, name)
		t.forget(name)
	}
	slices.Sort(names)
	t.unseen = nil
	return names
}
