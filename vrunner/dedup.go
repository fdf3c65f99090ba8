package vrunner

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/internal/memory"
)

// digest stands for a message. Two that differ have the same one by accident only with a
// probability that does not matter.
type digest [16]byte

// told is what one client of a watch has been sent: for each record that it has, the
// latest message. Past max names, or without room for them, it no longer remembers anything.
type told struct {
	max      int
	bytes    int          // of the names in latest
	held     *memory.Held // for latest and unseen
	overflow bool
	latest   map[string]digest
	// unseen are the records of latest that the initial state, which is being sent once
	// more, has not named yet. Nil outside of that.
	unseen map[string]struct{}
}

const (
	// nameBytes is how long names may be on average.
	nameBytes = 256
	// entryBytes is about what an entry of a map takes next to its name.
	entryBytes = 100
)

func (t *told) forget(name string) {
	if _, known := t.latest[name]; known {
		t.bytes -= len(name)
		delete(t.latest, name)
		t.held.Set(t.size(0))
	}
}

// size is what so many more names than there are take.
func (t *told) size(more int) int64 { return int64(t.bytes + entryBytes*(len(t.latest)+more)) }

// restart prepares for a further initial state.
func (t *told) restart() {
	t.unseen = make(map[string]struct{}, len(t.latest))
	for name := range t.latest {
		t.unseen[name] = struct{}{}
	}
}

// put reports whether a message is news for the client.
func (t *told) put(name string, message any) (news bool, err error) {
	if t.overflow {
		return true, nil
	}
	delete(t.unseen, name)
	m, ok := message.(proto.Message)
	if !ok {
		return false, fmt.Errorf("watch: %T is no protobuf message", message)
	}
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

// remove reports whether the client has the record that is gone.
func (t *told) remove(name string) bool {
	if t.overflow {
		return true
	}
	_, known := t.latest[name]
	t.forget(name)
	delete(t.unseen, name)
	return known
}

// gone are, at the end of a further initial state, the records that the client has and
// that are no longer there, in order. They are forgotten.
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
