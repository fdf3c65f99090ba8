package adapt

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"dbcontroller.dev/record"
)

const (
	// indexIdle is how long an index is kept that no list uses: it costs memory, and the longer
	// it was not used, the longer it takes to find out what has changed.
	indexIdle = time.Minute
	// indexBytes bounds the indexes of an Adapter, all together: it is enough for about a million
	// names. More are gone over for each page.
	indexBytes = 128 << 20
	// catchUps bounds how often an index asks for changes until it is at a snapshot: once, by
	// what a PagingStore promises.
	catchUps = 3
)

var (
	// errNoIndex: the names are to be gone over.
	errNoIndex = errors.New("no index of names")
	// errMoved: names came since the page's were chosen.
	errMoved = errors.New("names came meanwhile")
)

// index remembers the names of a kind whose stored names are in another order.
//
// It holds every name that was there at pos, and may hold more: those of groups that are gone,
// which show nothing. So it is never older than it is asked to be: a page is made of it when pos
// is not before the snapshot at which the page's groups were read, which was made after the page
// was asked for. That costs nothing where nothing was written, and otherwise one question to the
// database for what has changed since pos.
type index struct {
	kinds []string // stored
	kind  string   // shown
	turn  chan struct{}
	total *atomic.Int64 // bytes of all indexes of the Adapter

	mu      sync.Mutex
	names   names
	ready   bool
	large   bool // there are too many
	bytes   int
	pos     record.Position
	changes uint64 // counts changes seen
	grown   uint64 // counts names that came
	idle    *time.Timer
}

func newIndex(kind string, kinds []string, total *atomic.Int64) *index {
	return &index{kind: kind, kinds: kinds, total: total, turn: make(chan struct{}, 1)}
}

// sized notes how many bytes the index has. mu is held.
func (x *index) sized(bytes int) {
	x.total.Add(int64(bytes - x.bytes))
	x.bytes = bytes
}

// take waits until no other list fills the index or brings it up to date.
func (x *index) take(ctx context.Context) error {
	select {
	case x.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (x *index) leave() { <-x.turn }

// drop forgets everything. The next list fills the index again.
func (x *index) drop() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.names, x.ready, x.large, x.pos = names{}, false, false, record.Position{}
	x.sized(0)
}

// use keeps the index for another while, and reports what it has.
func (x *index) use() (ready, large bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.idle == nil {
		x.idle = time.AfterFunc(indexIdle, x.drop)
	} else if x.ready || x.large {
		x.idle.Reset(indexIdle)
	}
	return x.ready, x.large
}

// fill makes the index of all names, if it is not there.
func (x *index) fill(ctx context.Context, a *Adapter) error {
	if ready, large := x.use(); ready {
		return nil
	} else if large {
		return errNoIndex
	}
	if err := x.take(ctx); err != nil {
		return err
	}
	defer x.leave()
	if ready, _ := x.use(); ready {
		return nil
	}
	_, pos, err := a.paging.Since(ctx, record.Position{}, x.kinds...)
	if err != nil {
		return a.unknown(ctx, err)
	}
	var all []entry
	bytes := 0 // counted as they come: others fill theirs
	for _, kind := range x.kinds {
		err := a.names(ctx, kind, "", func(name string) error {
			c, ok := a.candidate(x.kind, kind, name)
			if !ok {
				return nil
			}
			e := entry{candidate: c}
			bytes += e.size()
			if x.total.Add(int64(e.size())) > int64(a.most.index) {
				return errNoIndex
			}
			all = append(all, e)
			return nil
		})
		if err != nil {
			x.total.Add(int64(-bytes))
			x.mu.Lock()
			x.large = errors.Is(err, errNoIndex)
			x.mu.Unlock()
			return err
		}
	}
	sorted := sortedNames(all)
	x.mu.Lock()
	x.names, x.bytes, x.pos, x.ready = sorted, bytes, pos, true
	x.mu.Unlock()
	x.use()
	return nil
}

// catchUp brings the index to a snapshot, or further, and reports whether names came since
// grown was counted.
func (x *index) catchUp(ctx context.Context, a *Adapter, at record.Version, grown uint64) (moved bool, err error) {
	if moved, done := x.reached(at, grown); done {
		return moved, nil
	}
	if err := x.take(ctx); err != nil {
		return false, err
	}
	defer x.leave()
	for range catchUps {
		if moved, done := x.reached(at, grown); done {
			return moved, nil
		}
		if err := x.ask(ctx, a); err != nil {
			return false, err
		}
	}
	return false, errNoIndex
}

// present brings the index to the present.
func (x *index) present(ctx context.Context, a *Adapter) error {
	if err := x.take(ctx); err != nil {
		return err
	}
	defer x.leave()
	return x.ask(ctx, a)
}

// ask takes what has changed until now. The caller has the turn.
func (x *index) ask(ctx context.Context, a *Adapter) error {
	x.mu.Lock()
	pos, ready := x.pos, x.ready
	x.mu.Unlock()
	if !ready {
		return errNoIndex // it was dropped meanwhile
	}
	changed, now, err := a.paging.Since(ctx, pos, x.kinds...)
	if err != nil {
		x.drop() // what is missing is no longer known
		return a.unknown(ctx, err)
	}
	x.note(a, changed, now)
	return nil
}

// unknown is an error of asking what has changed. A list can do without.
func (a *Adapter) unknown(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_ = a.paged(err)
	return errNoIndex
}

func (x *index) reached(at record.Version, grown uint64) (moved, done bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.grown != grown, x.ready && x.pos.At.Compare(at) >= 0
}

// note takes changes up to a position.
func (x *index) note(a *Adapter, changed []record.Change, now record.Position) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ready {
		return
	}
	for _, change := range changed {
		name, ok := change.Key.Name()
		if change.Marker != "" || !ok {
			continue // a fence, or what no list shows
		}
		c, ok := a.candidate(x.kind, change.Kind, name)
		if !ok {
			continue
		}
		x.changes++
		e := x.names.find(c)
		if e == nil {
			made := entry{candidate: c, touched: x.changes}
			x.names.insert(made)
			x.sized(x.bytes + made.size())
			x.grown++
			continue
		}
		if e.gone {
			x.grown++
		}
		e.touched, e.gone = x.changes, false
	}
	if x.pos = now; x.total.Load() > int64(a.most.index) {
		x.names, x.ready, x.large = names{}, false, true
		x.sized(0)
	}
}

// indexed is a page that is made of an index.
type indexed struct {
	a       *Adapter
	x       *index
	fresh   bool   // the index has what there was when the page was asked for
	changes uint64 // seen when the last window was made
	grown   uint64
}

// window takes names as far as they are needed. Where there are none, no group shows how old the
// index may be.
func (r *indexed) window(ctx context.Context, p page, from string) (*window, error) {
	w, err := r.take(p, from)
	if err != nil || len(w.of) > 0 || r.fresh {
		return w, err
	}
	if err := r.x.present(ctx, r.a); err != nil {
		return nil, err
	}
	r.fresh = true
	return r.take(p, from)
}

func (r *indexed) take(p page, from string) (*window, error) {
	const spare = 16
	r.x.mu.Lock()
	defer r.x.mu.Unlock()
	if !r.x.ready {
		return nil, errNoIndex
	}
	r.changes, r.grown = r.x.changes, r.x.grown
	return r.x.names.page(p, from, p.limit-len(p.recs)+spare), nil
}

// load reads groups. The first that are read show when that was, and so whether the index has
// all names that there were.
func (r *indexed) load(ctx context.Context, of []candidate) (groups, error) {
	found, at, err := r.a.loadAt(ctx, of)
	if err != nil {
		return nil, err
	}
	if !r.fresh {
		moved, err := r.x.catchUp(ctx, r.a, at, r.grown)
		if err != nil {
			return nil, err
		}
		if r.fresh = true; moved {
			return nil, errMoved
		}
	}
	r.x.mu.Lock()
	defer r.x.mu.Unlock()
	for _, c := range of {
		// A change that was not seen yet brings it back.
		empty := len(found[c.id]) == 0 || !led(r.a.leads[r.x.kind], found[c.id])
		if e := r.x.names.find(c); empty && e != nil && e.touched <= r.changes {
			e.gone = true
		}
	}
	return found, nil
}
