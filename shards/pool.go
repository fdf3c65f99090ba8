package shards

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/coord"
)

// DefaultTTL is how long a member that is silent keeps its locks.
const DefaultTTL = 3 * time.Second

// Config holds which ring a Pool takes part in, and as whom.
type Config struct {
	// Prefix is where the keys are: <prefix>/ring, <prefix>/controllers/<id>,
	// <prefix>/shards/<shard>. A slash at its end may be there or not.
	Prefix string
	// ID names this process among the members. A second process with the same one
	// waits until the first is gone.
	ID   string
	Ring int           // number of shards, at least 1
	TTL  time.Duration // of the lease; zero is DefaultTTL
	Log  *zap.Logger   // nil for none
}

// Pool is this process's part in the ownership of the ring. Its methods are safe for
// concurrent use; what they return is kept up to date while Run runs.
type Pool struct {
	store   coord.Store
	cfg     Config
	changes chan struct{}
	wake    chan struct{} // for the loop of Run: a view changed, or Release was called

	mu        sync.Mutex
	lease     coord.Lease // nil between sessions
	owned     map[int]Lock
	leaving   map[int]bool
	releasing map[int]*release
	gone      map[int]int64 // Create of the latest lock that we deleted: a late view may still show it
	members   view
	locks     view
}

// release is a lock that the engine has let go of and the store has not yet.
type release struct {
	lock Lock
	done chan struct{}
}

// New makes a Pool; Run starts it.
func New(store coord.Store, cfg Config) *Pool {
	if cfg.TTL <= 0 {
		cfg.TTL = DefaultTTL
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	cfg.Log = cfg.Log.With(zap.String("member", cfg.ID))
	if cfg.Prefix != "" && !strings.HasSuffix(cfg.Prefix, "/") {
		cfg.Prefix += "/"
	}
	p := &Pool{store: store, cfg: cfg, changes: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
	p.begin(nil)
	return p
}

// Owned returns the shards owned now; empty as soon as the lease is known to be lost.
// Shards that are Leaving are among them until they are released.
func (p *Pool) Owned() map[int]Lock {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return map[int]Lock{}
	}
	return maps.Clone(p.owned)
}

// Leaving lists, in order, the owned shards that belong to other members by now: stop
// work on them, store what is to be stored, and Release them.
func (p *Pool) Leaving() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return nil
	}
	return slices.Sorted(maps.Keys(p.leaving))
}

// Changes is signalled whenever Owned or Leaving may have changed. Several changes may
// make one signal. It is for one receiver.
func (p *Pool) Changes() <-chan struct{} { return p.changes }

// Lease returns the lease that this process is registered under, for what else has to
// vanish with it, or 0 while there is none.
func (p *Pool) Lease() coord.LeaseID {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return 0
	}
	return p.lease.ID()
}

// Release gives up a shard that the caller has stopped working on; Owned does not have
// it any longer from the beginning of the call. It returns once others can take it, or
// when ctx ends; the lock is given up in the end all the same. A shard that is not owned
// needs no release. One that is still assigned to this member is soon taken again.
func (p *Pool) Release(ctx context.Context, shard int) error {
	p.mu.Lock()
	r := p.releasing[shard]
	if lock, ok := p.owned[shard]; ok {
		r = &release{lock: lock, done: make(chan struct{})}
		p.releasing[shard] = r
		delete(p.owned, shard)
		delete(p.leaving, shard)
		signal(p.changes)
		signal(p.wake)
	}
	p.mu.Unlock()
	if r == nil {
		return nil
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// alive reports whether the present lease is not known to be lost. p.mu is held.
func (p *Pool) alive() bool {
	if p.lease == nil {
		return false
	}
	select {
	case <-p.lease.Done():
		return false
	default:
		return true
	}
}

// begin forgets everything that hung on the lease before. A nil lease is none.
func (p *Pool) begin(lease coord.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.releasing {
		close(r.done) // gone with the lease, or soon
	}
	p.lease = lease
	p.owned, p.leaving = map[int]Lock{}, map[int]bool{}
	p.releasing, p.gone = map[int]*release{}, map[int]int64{}
	p.members, p.locks = view{}, view{}
	signal(p.changes)
}

// signal leaves one signal in a channel of capacity one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
