package sinktest

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"

	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/record"
)

// ErrInjected is the error of an injected fault.
var ErrInjected = errors.New("injected fault")

// Memory is a sink in memory. With Misbehave it does what the contract of sink.Sink allows and a
// Follower must survive. It is safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	state   sink.State
	entries map[key]sink.Entry
	docs    map[key]sink.Document
	rand    *rand.Rand  // nil: it behaves
	late    []sink.Item // items of earlier writes, which come once more
	faults  int
}

type key struct{ kind, name string }

var _ sink.Sink = (*Memory)(nil)

// NewMemory returns an empty sink.
func NewMemory() *Memory {
	return &Memory{entries: map[key]sink.Entry{}, docs: map[key]sink.Document{}}
}

// Misbehave makes writes fail before, in the middle of and after their work, and makes earlier
// writes arrive again.
func (m *Memory) Misbehave(seed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rand = rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- a test must be repeatable
}

// Behave ends Misbehave, and returns the number of faults so far.
func (m *Memory) Behave() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rand, m.late = nil, nil
	return m.faults
}

// Document returns the live document of a record.
func (m *Memory) Document(kind, name string) (sink.Document, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	doc, ok := m.docs[key{kind, name}]
	return doc, ok
}

// State returns the latest stored State.
func (m *Memory) State(context.Context) (sink.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state, nil
}

// Write writes items and then the state.
func (m *Memory) Write(_ context.Context, items []sink.Item, state sink.State) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rand == nil {
		m.put(items)
		m.state = state
		return nil
	}
	if m.rand.IntN(3) == 0 {
		m.put(m.late) // a former writer wakes up
		m.faults++
	}
	m.late = append(m.late, items...)
	if len(m.late) > 1000 {
		m.late = m.late[len(m.late)-1000:]
	}
	switch m.rand.IntN(10) {
	case 0: // nothing, or a part in any order
		items = slices.Clone(items)
		m.rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		m.put(items[:m.rand.IntN(len(items)+1)])
		m.faults++
		return ErrInjected
	case 1: // everything, without the state
		m.put(items)
		m.faults++
		return ErrInjected
	case 2: // everything, and the acknowledgement is lost
		m.put(items)
		m.state = state
		m.faults++
		return ErrInjected
	}
	m.put(items)
	m.state = state
	return nil
}

// put writes items over lower guards. The caller holds mu.
func (m *Memory) put(items []sink.Item) {
	for _, it := range items {
		k := key{it.Kind, it.Name}
		if have, there := m.entries[k]; there && have.Guard.Compare(it.Guard) >= 0 {
			continue
		}
		m.entries[k] = sink.Entry{Name: it.Name, Guard: it.Guard, Digest: it.Digest, Dead: it.Doc == nil}
		if it.Doc == nil {
			delete(m.docs, k)
		} else {
			m.docs[k] = it.Doc
		}
	}
}

// Forget removes lower generations.
func (m *Memory) Forget(_ context.Context, generation uint64) error {
	m.remove(func(e sink.Entry) bool { return e.Guard.Epoch < generation })
	return nil
}

// Purge removes tombstones with a lower guard.
func (m *Memory) Purge(_ context.Context, before record.Guard) error {
	m.remove(func(e sink.Entry) bool { return e.Dead && e.Guard.Compare(before) < 0 })
	return nil
}

func (m *Memory) remove(gone func(sink.Entry) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, e := range m.entries {
		if gone(e) {
			delete(m.entries, k)
			delete(m.docs, k)
		}
	}
}

// Entries returns the entries of a kind in name order.
func (m *Memory) Entries(_ context.Context, kind, after string, limit int) ([]sink.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []sink.Entry
	for k, e := range m.entries {
		if k.kind == kind && k.name > after {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b sink.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return out[:min(limit, len(out))], nil
}

// Lookup returns the entries of the named records.
func (m *Memory) Lookup(_ context.Context, kind string, names []string) ([]sink.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []sink.Entry
	for _, name := range names {
		if e, there := m.entries[key{kind, name}]; there {
			out = append(out, e)
		}
	}
	return out, nil
}
