package moves

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/vrunner"
)

// Data is the active namespace of a region, as a vrunner.View of it is.
type Data interface {
	vrunner.SelectStore
	vrunner.BoundedStore
}

// Kind is what a Mover knows of a kind.
type Kind struct {
	region.Kind
	// Accept returns an error if this region cannot own such a record.
	Accept func(ctx context.Context, rec record.Record) error
}

// Config configures a Mover.
type Config struct {
	Region  string   // this one
	Others  []string // regions that records move to and come from
	Version string   // API version of the data
	// Versions are the API versions of the program, oldest first.
	Versions []string
	Kinds    map[string]Kind
	Data     Data
	// Ask asks another region whether a record has its counterpart there (Standing).
	Ask func(ctx context.Context, to string, q Question) (bool, error)
	Log *slog.Logger
}

// Mover takes the steps of its region in the moves of all records, while its version is active.
type Mover struct {
	cfg   Config
	turns map[string]*turns // by region

	mu      sync.Mutex
	pending map[vrunner.Dirty]*pending
	more    bool // there are others than pending
}

// pending is a move that has not ended.
type pending struct {
	region string
	in     bool // from there to here
	since  time.Time
	waits  string
	next   time.Time     // of the next look
	pause  time.Duration // until the one after it
}

// New returns a mover.
func New(cfg Config) *Mover {
	m := &Mover{cfg: cfg, turns: map[string]*turns{}, pending: map[vrunner.Dirty]*pending{}}
	for _, other := range cfg.Others {
		m.turns[other] = newTurns()
	}
	return m
}

// ErrUnknownRegion reports a move to or from a region that the configuration does not have any more.
var ErrUnknownRegion = errors.New("the region is not in regions.others: add it again until its moves have ended")

const (
	// pendingMost bounds the moves that a mover knows by name. It looks for the others when these have
	// ended.
	pendingMost = 10_000
	// readMost and readBytes bound the records of one read.
	readMost  = 8
	listMost  = 200
	listBytes = 4 << 20
	// leastLook and mostLook are the pauses between two looks at a move in which nothing happens.
	leastLook = time.Second
	mostLook  = 30 * time.Second
)

// Run works until ctx ends. Several movers at a time do no harm.
func (m *Mover) Run(ctx context.Context) error {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(m.cfg.Kinds)) {
		kinds = append(kinds, kind, region.CopiesKind(kind))
	}
	// All changes after the list come by the subscription.
	sub, err := m.cfg.Data.Changes(ctx, kinds...)
	if err != nil {
		return err
	}
	defer sub.Close()
	defer m.forget()
	// A list can take longer than the subscription holds changes for, so it runs beside them.
	again := make(chan struct{}, 1)
	again <- struct{}{}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-again:
			}
			if err := m.list(ctx); err != nil {
				return err
			}
		}
	})
	group.Go(func() error { return m.follow(ctx, sub, again) })
	for _, other := range m.cfg.Others {
		group.Go(func() error { return m.ask(ctx, other) })
	}
	return group.Wait()
}

// follow looks at changed records and at those that wait. It asks for a list when changes were lost.
func (m *Mover) follow(ctx context.Context, sub vrunner.Subscription, list chan<- struct{}) error {
	for {
		dirty, err := m.wait(ctx, sub)
		lost := errors.Is(err, vrunner.ErrLost)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !lost:
			return err
		}
		if lost || m.relist() {
			select {
			case list <- struct{}{}:
			default: // it is asked for already
			}
		}
		if err := m.look(ctx, m.names(dirty), ""); err != nil {
			return err
		}
	}
}

// wait returns changed records, or nothing when it is time to look at the pending ones.
func (m *Mover) wait(ctx context.Context, sub vrunner.Subscription) ([]vrunner.Dirty, error) {
	waiting := ctx
	if at := m.nextLook(); !at.IsZero() {
		var cancel context.CancelFunc
		waiting, cancel = context.WithDeadline(ctx, at)
		defer cancel()
	}
	dirty, err := sub.Next(waiting)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return nil, nil
	}
	return dirty, err
}

// names returns the changed records, under the names of their kinds, and the pending ones whose time has
// come.
func (m *Mover) names(dirty []vrunner.Dirty) []vrunner.Dirty {
	seen := map[vrunner.Dirty]bool{}
	for _, d := range dirty {
		if _, own := m.cfg.Kinds[d.Kind]; !own {
			_, name, ok := region.OfCopy(d.Name)
			if !ok {
				continue
			}
			d = vrunner.Dirty{Kind: strings.TrimSuffix(d.Kind, region.CopiesKind("")), Name: name}
		}
		seen[d] = true
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for d, p := range m.pending {
		if !p.next.After(now) {
			seen[d] = true
		}
	}
	return slices.Collect(maps.Keys(seen))
}

func (m *Mover) nextLook() (at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pending {
		if at.IsZero() || p.next.Before(at) {
			at = p.next
		}
	}
	return at
}

// relist reports whether moves that are not known by name may be looked for.
func (m *Mover) relist() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.more && len(m.pending) < pendingMost/2
}

func (m *Mover) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.pending)
	m.more = false
}

// list looks at all records and copies that may need a step.
func (m *Mover) list(ctx context.Context) error {
	m.mu.Lock()
	m.more = false
	m.mu.Unlock()
	for kind, k := range m.cfg.Kinds {
		err := eachMoving(ctx, m.cfg.Data, k.Kind, kind, func(name string, _ region.Move) error {
			return m.look(ctx, []vrunner.Dirty{{Kind: kind, Name: name}}, "")
		})
		if err == nil {
			err = eachMoving(ctx, m.cfg.Data, k.Kind, region.CopiesKind(kind), func(key string, move region.Move) error {
				_, name, ok := region.OfCopy(key)
				if !ok || move.Step != region.Leaving || move.Region != m.cfg.Region {
					return nil // the own record decides
				}
				return m.look(ctx, []vrunner.Dirty{{Kind: kind, Name: name}}, "")
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eachMoving calls do for the records of a kind whose move has not ended.
func eachMoving(ctx context.Context, data Data, decl region.Kind, kind string, do func(name string, move region.Move) error) error {
	return eachRecord(ctx, data, decl, kind, func(name string, move region.Move) error {
		if move.Step == "" || move.Step == region.Arrived {
			return nil
		}
		return do(name, move)
	})
}

// eachRecord calls do for the records of a kind, in name order.
func eachRecord(ctx context.Context, data Data, decl region.Kind, kind string, do func(name string, move region.Move) error) error {
	for after, more := "", true; more; {
		var recs []record.Record
		var err error
		if recs, more, err = data.ListBounded(ctx, kind, "", after, listMost, listBytes); err != nil {
			return err
		}
		for _, rec := range recs {
			after, _ = rec.Key.Name()
			if err := do(after, decl.MoveOf(rec.Doc)); err != nil {
				return err
			}
		}
		more = more && len(recs) > 0
	}
	return nil
}

// note remembers a move that has not ended. An empty text ends it, or its next step is on its way.
func (m *Mover) note(d vrunner.Dirty, move region.Move, waits string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if waits == "" {
		delete(m.pending, d)
		return
	}
	p := m.pending[d]
	switch {
	case p == nil && len(m.pending) >= pendingMost:
		m.more = true
		return
	case p == nil:
		_, begun := region.OfID(move.ID)
		p = &pending{since: begun, pause: leastLook}
		m.pending[d] = p
	case p.next.After(time.Now()):
		p.waits = waits
		return // it changed before the time of the look
	default:
		p.pause = min(2*p.pause, mostLook)
	}
	p.region, p.in, p.waits = move.Region, move.Step == region.Arriving, waits
	p.next = time.Now().Add(p.pause)
}
