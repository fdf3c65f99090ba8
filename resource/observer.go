package resource

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"dbcontroller.dev/vrunner"
)

// Change is a change of a resource, as an Observer sees it.
type Change[M proto.Message] struct {
	Name   string
	Before M // the state at the previous call for this resource; nil: there was none, or see Known
	After  M // nil: the resource is deleted
	// Known reports that the Observer has seen the resource before. Before is then nil only if the kept
	// states take more than 64 MiB.
	Known bool
	// Listed reports that the resource was there when the Observer began, and may have been for long.
	Listed bool
}

// observerBytes bounds the states that an Observer keeps.
const observerBytes = 64 << 20

// Observer calls a function with the changes of the resources of a table. Make one for the life of a
// process and pass its Run to a vrunner.Observer: it then goes on over flips, and sees only what
// differs.
//
// # Guarantees
//
// While the process runs, the function gets the latest state of each resource at least once after each
// change, and the deletion of each resource that it got. Calls for one resource are in the order of its
// changes. Changes in quick succession, and those during a flip, may come as one. A change may come
// again if the function returned an error for it, and never otherwise in one process. It may come
// before the client's write is answered, and never before it is committed.
//
// A process that starts gets all resources first, with Listed. So a restart repeats states, and does
// not report deletions from the time when no process ran. What must be exact has to be written in the
// same transaction as the change itself.
//
// An Observer does not delay writes, and a slow function delays only later calls. It keeps the name and
// a digest of each resource, about 150 bytes, and the states of resources up to 64 MiB together.
type Observer[M proto.Message] struct {
	observe func(ctx context.Context, c Change[M]) error

	mu       sync.Mutex // held by Run
	seen     map[string]observed
	bytes    int
	complete bool // all resources that were there at the beginning are in seen
}

// observed is what an Observer keeps of a resource.
type observed struct {
	state []byte // encoded; nil: there is no room
	sum   digest
}

// NewObserver returns an Observer that calls observe, one call at a time. observe may keep the messages.
func NewObserver[M proto.Message](observe func(ctx context.Context, c Change[M]) error) *Observer[M] {
	return &Observer[M]{observe: observe, seen: map[string]observed{}}
}

// Run observes the resources of a table until ctx ends. After the first call, it begins with what
// differs from the end of the previous one, whatever the table's data. It stops at the first error of
// the function, and the next call begins with that change.
func (o *Observer[M]) Run(ctx context.Context, t *Table[M]) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	listed, level := map[string]bool{}, false
	return t.Watch(ctx, &emptypb.Empty{}, func(e Event[M]) error {
		switch e.Type {
		case vrunner.EventPut:
			if !level {
				listed[e.Name] = true
			}
			return o.put(ctx, t, e.Name, e.Message)
		case vrunner.EventDelete:
			return o.gone(ctx, t, e.Name)
		case vrunner.EventLevel:
			for _, name := range slices.Sorted(maps.Keys(o.seen)) {
				if listed[name] {
					continue
				}
				if err := o.gone(ctx, t, name); err != nil {
					return err
				}
			}
			level, o.complete, listed = true, true, nil
		case vrunner.EventOther:
		}
		return nil
	})
}

func (o *Observer[M]) put(ctx context.Context, t *Table[M], name string, m M) error {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	sum := sha256.Sum256(raw)
	now := observed{raw, digest(sum[:len(digest{})])}
	old, known := o.seen[name]
	if known && old.sum == now.sum {
		return nil
	}
	c := Change[M]{Name: name, After: proto.CloneOf(m), Known: known, Listed: !o.complete}
	if c.Before, err = t.decoded(old.state); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := o.observe(ctx, c); err != nil {
		return err
	}
	if o.bytes += len(raw) - len(old.state); o.bytes > observerBytes {
		o.bytes -= len(raw)
		now.state = nil
	}
	now.state = bytes.Clone(now.state) // without spare room
	o.seen[name] = now
	return nil
}

func (o *Observer[M]) gone(ctx context.Context, t *Table[M], name string) error {
	old, known := o.seen[name]
	if !known {
		return nil
	}
	before, err := t.decoded(old.state)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := o.observe(ctx, Change[M]{Name: name, Before: before, Known: true}); err != nil {
		return err
	}
	delete(o.seen, name)
	o.bytes -= len(old.state)
	return nil
}

// decoded returns a kept state, or nil if there is none.
func (t *Table[M]) decoded(state []byte) (M, error) {
	var none M
	if state == nil {
		return none, nil
	}
	m := t.fresh()
	return m, proto.Unmarshal(state, m)
}
