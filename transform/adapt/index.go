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
	// indexIdle is how long an unused index is kept. It costs memory, and the older it is, the
	// longer it takes to read the changes since.
	indexIdle = time.Minute
	// indexBytes limits the memory of all indexes of an Adapter together. It suffices for about a
	// million names. With more names, each page scans them.
	indexBytes = 128 << 20
	// ownPart is the part of indexBytes that the kinds have in addition, each the same. Without it,
	// one large kind would leave no memory for small ones.
	ownPart = 8
	// catchUps limits the reads of changes until an index reaches a snapshot. A PagingStore
	// promises that one read is enough.
	catchUps = 3
)

var (
	// errNoIndex means that there is no index of names. Scan all names.
	errNoIndex = errors.New("no index of names")
	// errMoved means that names were added since the page chose its names.
	errMoved = errors.New("names came meanwhile")
)

// index holds the names of a kind whose stored names sort differently.
//
// It contains every name that existed at pos. It may contain more: names of groups that no longer
// exist, which show nothing. A page first reads its groups, in a snapshot that is newer than the
// request. It then uses the index only if pos is not older than that snapshot. Without new writes
// this costs nothing; otherwise it costs one read of the changes since pos.
type index struct {
	kinds []string // stored
	kind  string   // shown
	turn  chan struct{}
	own   int           // bytes that this index may have in any case
	total *atomic.Int64 // bytes of all indexes of the Adapter beyond their own

	mu      sync.Mutex
	names   names
	ready   bool
	large   bool // there are too many names
	bytes   int
	pos     record.Position
	changes uint64 // number of changes seen
	grown   uint64 // number of names added
	idle    *time.Timer
}

func newIndex(kind string, kinds []string, total *atomic.Int64) *index {
	return &index{kind: kind, kinds: kinds, total: total, turn: make(chan struct{}, 1)}
}

// sized sets the size of the index and adjusts the total. The caller holds mu.
func (x *index) sized(bytes int) {
	x.total.Add(x.grow(x.bytes, bytes))
	x.bytes = bytes
}

// grow returns the change of the total if the index changes its size.
func (x *index) grow(from, to int) int64 { return int64(max(0, to-x.own) - max(0, from-x.own)) }

// share gives each index its own memory.
func (a *Adapter) share() {
	for _, x := range a.indexes {
		x.own = a.most.index / ownPart / len(a.indexes)
	}
}

// take waits until no other list fills or updates the index.
func (x *index) take(ctx context.Context) error {
	select {
	case x.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (x *index) leave() { <-x.turn }

// drop deletes the content of the index. The next list fills it again.
func (x *index) drop() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.names, x.ready, x.large, x.pos = names{}, false, false, record.Position{}
	x.sized(0)
}

// use extends the life of the index and reports its state.
func (x *index) use() (ready, large bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	// Start the timer with the first use. Later uses only extend it.
	if x.idle == nil {
		x.idle = time.AfterFunc(indexIdle, x.drop)
	} else if x.ready || x.large {
		x.idle.Reset(indexIdle)
	}
	return x.ready, x.large
}

// fill reads all names into the index, if it is empty.
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
	// Another list may have filled it, or found too many names, while this one waited.
	if ready, large := x.use(); ready {
		return nil
	} else if large {
		return errNoIndex
	}
	// Take the position before reading names, so that changes during the read are seen again later.
	_, pos, err := a.paging.Since(ctx, record.Position{}, x.kinds...)
	if err != nil {
		return a.unknown(ctx, err)
	}
	var all []entry
	bytes := 0 // total grows with each name, because other indexes may fill at the same time
	for _, kind := range x.kinds {
		err := a.names(ctx, kind, "", func(name string) error {
			c, ok := a.candidate(x.kind, kind, name)
			if !ok {
				return nil
			}
			e := entry{candidate: c}
			more := x.grow(bytes, bytes+e.size())
			bytes += e.size()
			// Stop early: reading all names would be wasted work.
			if x.total.Add(more) > int64(a.most.index) && more > 0 {
				return errNoIndex
			}
			all = append(all, e)
			return nil
		})
		if err != nil {
			// Give back the bytes of the names that this index drops.
			x.total.Add(x.grow(bytes, 0))
			x.mu.Lock()
			x.large = errors.Is(err, errNoIndex)
			x.mu.Unlock()
			return err
		}
	}
	// Sort before locking, because sorting takes long.
	sorted := sortedNames(all)
	x.mu.Lock()
	x.names, x.bytes, x.pos, x.ready = sorted, bytes, pos, true
	x.mu.Unlock()
	x.use()
	return nil
}

// catchUp updates the index to a snapshot or beyond. moved reports that names were added since the
// count grown.
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

// present updates the index to the present moment.
func (x *index) present(ctx context.Context, a *Adapter) error {
	if err := x.take(ctx); err != nil {
		return err
	}
	defer x.leave()
	return x.ask(ctx, a)
}

// ask reads the changes up to the present moment. The caller must have the turn.
func (x *index) ask(ctx context.Context, a *Adapter) error {
	x.mu.Lock()
	// Do not hold the lock during the database call: other lists read the index.
	pos, ready := x.pos, x.ready
	x.mu.Unlock()
	if !ready {
		return errNoIndex // it was dropped in the meantime
	}
	changed, now, err := a.paging.Since(ctx, pos, x.kinds...)
	if err != nil {
		x.drop() // the missing changes are unknown now
		return a.unknown(ctx, err)
	}
	x.note(a, changed, now)
	return nil
}

// unknown handles an error of reading changes. The list continues without an index.
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

// note applies changes up to a position.
func (x *index) note(a *Adapter, changed []record.Change, now record.Position) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ready {
		return
	}
	for _, change := range changed {
		name, ok := change.Key.Name()
		if change.Marker != "" || !ok {
			continue // a fence, or a record that no list shows
		}
		c, ok := a.candidate(x.kind, change.Kind, name)
		if !ok {
			continue
		}
		x.changes++
		// A change does not show whether the record still exists, so keep or add its name.
		e := x.names.find(c)
		if e == nil {
			made := entry{candidate: c, touched: x.changes}
			x.names.insert(made)
			x.sized(x.bytes + made.size())
			x.grown++
			continue
		}
		// The group may exist again, so the name counts as added.
		if e.gone {
			x.grown++
		}
		e.touched, e.gone = x.changes, false
	}
	// Too large: later lists scan the names instead.
	if x.pos = now; x.bytes > x.own && x.total.Load() > int64(a.most.index) {
		x.names, x.ready, x.large = names{}, false, true
		x.sized(0)
	}
}

// indexed is the source of a page that uses an index.
type indexed struct {
	a       *Adapter
	x       *index
	fresh   bool   // the index has all names from before the request
	changes uint64 // count when the last window was made
	grown   uint64
}

// window returns as many names as the page needs. If there are none, no group read shows the
// required age of the index, so the index is updated to the present.
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
	// Remember the counts of this window, to detect names that are added later.
	r.changes, r.grown = r.x.changes, r.x.grown
	return r.x.names.page(p, from, p.limit-len(p.recs)+spare), nil
}

// load reads groups. The first read defines the snapshot that the index must reach to contain all
// names.
func (r *indexed) load(ctx context.Context, of []candidate) (groups, error) {
	// Read the groups first: their snapshot is the age that the index needs.
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
		// Skip names with a change that the window did not see yet: the group may exist again.
		empty := len(found[c.id]) == 0 || !led(r.a.leads[r.x.kind], found[c.id])
		if e := r.x.names.find(c); empty && e != nil && e.touched <= r.changes {
			e.gone = true
		}
	}
	return found, nil
}
