package syncer

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// This file decides when the groups of a flight are written, beside those of earlier ones.

// air holds the flights of one stream.
type air struct {
	g      *errgroup.Group
	room   chan struct{} // has one element for each flight that writes
	up     []*flight     // that may not have landed, the oldest first
	latest *flight       // nil before the first
}

func newAir(g *errgroup.Group) *air {
	return &air{g: g, room: make(chan struct{}, flightsAtOnce)}
}

// clear waits until another batch may begin. It returns early if ctx ends.
func (a *air) clear(ctx context.Context) {
	select {
	case a.room <- struct{}{}:
		<-a.room
	case <-ctx.Done():
	}
	if a.up = slices.DeleteFunc(a.up, (*flight).hasLanded); len(a.up) == flightsInAir {
		_ = a.up[0].await(ctx) // its failure ends the read
	}
}

// part is a set of groups that a flight writes together.
type part struct {
	of     *flight
	ids    []transform.GroupID
	groups map[transform.GroupID]bool // ids as a set
	done   chan struct{}              // closed when they are written

	mu        sync.Mutex
	begun     bool
	notBefore record.Version // of the state that is read
}

func newPart(of *flight) *part {
	return &part{of: of, groups: map[transform.GroupID]bool{}, done: make(chan struct{}), notBefore: of.batch.Pos.At}
}

func (p *part) add(id transform.GroupID) {
	p.ids, p.groups[id] = append(p.ids, id), true
}

// ride has the groups of the part written as they are at a later version. It returns false if the part
// has begun.
func (p *part) ride(at record.Version) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun {
		return false
	}
	if p.notBefore.Compare(at) < 0 {
		p.notBefore = at
	}
	return true
}

// begin ends the time in which later batches may ride, and returns the version that all of them need.
func (p *part) begin() record.Version {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = true
	return p.notBefore
}

// isDone reports whether the part has been written.
func (p *part) isDone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// await waits until the part has been written. It returns errBefore if its batch has failed.
func (p *part) await(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-p.of.landed:
		return p.of.succeeded(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// assign decides when a group is written: at once, after earlier batches, or by one of them. air holds
// the earlier ones, the oldest first.
func (f *flight) assign(id transform.GroupID, unit bool, air []*flight) {
	f.units = f.units || unit
	for _, other := range slices.Backward(air) {
		switch {
		case other.hasLanded():
		case unit && other.units:
			f.waits = true
			f.share(id, other.free, other.shared)
			return
		case other.shared.groups[id] && !other.shared.isDone():
			if other.shared.ride(f.batch.Pos.At) {
				f.rides = true
			} else {
				f.share(id, other.shared)
			}
			return
		case other.free.groups[id] && !other.free.isDone():
			f.share(id, other.free)
			return
		}
	}
	f.free.add(id)
}

// share has a group written after parts of an earlier batch.
func (f *flight) share(id transform.GroupID, after ...*part) {
	f.shared.add(id)
	for _, p := range after {
		if !slices.Contains(f.turns, p) {
			f.turns = append(f.turns, p)
		}
	}
}

// takeTurns waits until the shared groups may be written. It then forgets what it has waited for: these
// parts name their flights, which would otherwise keep all flights before them in memory.
func (f *flight) takeTurns(ctx context.Context) error {
	for _, turn := range f.turns {
		if err := turn.await(ctx); err != nil {
			return err
		}
	}
	f.turns = nil
	return nil
}

// write writes the groups of a part, in the state that every batch needs which rides on it.
func (e *Engine) write(ctx context.Context, p *part) error {
	at := p.begin()
	if len(p.ids) > 0 {
		err := e.syncGroups(ctx, p.ids, at)
		// After errOver the flip has come meanwhile. The reverse sync undoes these changes.
		if err != nil && !errors.Is(err, errOver) {
			return err
		}
	}
	close(p.done)
	return nil
}
