package recordtest

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
)

// Encrypted returns the backend with encrypted managed kinds. A backend that passes the suite
// passes it in this form too, except for indexes declared over existing records.
func Encrypted(t *testing.T, b Backend) Backend {
	t.Helper()
	keys, err := sealed.NewKeys("a001", sealed.Key{Name: "a001", Bytes: bytes.Repeat([]byte("key "), sealed.KeySize/4)})
	if err != nil {
		t.Fatal(err)
	}
	notes := &Notes{}
	s := sealed.New("v1", func() *sealed.Keys { return keys }, notes)
	notes.Begin(t, s)
	b.Namespace = s.Namespace(b.Namespace)
	if once, ok := b.Client.(record.OnceClient); ok {
		b.Client = s.Client(once)
	}
	if reopen := b.Reopen; reopen != nil {
		b.Reopen = func() record.Namespace { return s.Namespace(reopen()) }
	}
	// Encrypted fields of existing records have no index, and sealed uses the label itself.
	b.NoLateIndexes, b.NoLabels = true, true
	return b
}

// Notes holds a State of keys in memory.
type Notes struct {
	mu    sync.Mutex
	state sealed.State
	reads int
}

var _ sealed.Notes = (*Notes)(nil)

// State returns the stored State.
func (n *Notes) State(context.Context) (sealed.State, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads++
	return n.state, nil
}

// Whose returns the same name for all Notes.
func (*Notes) Whose() string { return "notes of a test" }

// Begin stores the first State of a namespace.
func (n *Notes) Begin(t *testing.T, s *sealed.Sealer) {
	t.Helper()
	first, err := s.First(nil)
	if err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if first != nil {
		n.state = *first
	}
}

// Reads returns the number of calls of State.
func (n *Notes) Reads() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reads
}

// Change updates the State.
func (n *Notes) Change(_ context.Context, change func(*sealed.State) (bool, error)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	next := n.state
	if write, err := change(&next); err != nil || !write {
		return err
	}
	n.state = next
	return nil
}
