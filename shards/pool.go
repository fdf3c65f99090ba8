package shards

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord"
)

// DefaultTTL is the default lifetime of a lease: a member that is silent for so long loses its
// locks.
const DefaultTTL = 3 * time.Second

// Config selects the ring of a Pool, and its identity there.
type Config struct {
	// Prefix is the prefix of the keys <prefix>/ring, <prefix>/controllers/<id> and
	// <prefix>/shards/<shard>. A slash at its end is optional.
	Prefix string
	// ID identifies this process among the members. A second process with the same ID waits until
	// the first is gone.
	ID   string
	Ring int           // number of shards, at least 1
	TTL  time.Duration // of the lease; 0 selects DefaultTTL
	Log  *zap.Logger   // nil discards logs
}

// Pool is this process's part in the ownership of the ring. Its methods are safe for concurrent
// use. Their results are kept up to date while Run runs.
type Pool struct {
	store   coord.Store
	cfg     Config
	changes chan struct{}
	wake    chan struct{} // for the loop of Run, after a new view or a Release

	mu        sync.Mutex
	lease     coord.Lease // nil between sessions
	owned     map[int]Lock
	leaving   map[int]bool
	releasing map[int]*release
	gone      map[int]int64 // Create of the latest lock deleted here, for old views
	members   view
	locks     view
}

// release is a lock that the engine has released and the store still has.
type release struct {
	lock Lock
	done chan struct{}
}

// New returns a Pool. It takes part in the ring once Run is called.
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

// Owned returns the locks of the shards owned now, by shard. The caller owns the map. It is empty
// as soon as the lease is known to be lost. Leaving shards are owned until their release.
func (p *Pool) Owned() map[int]Lock {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return map[int]Lock{} // the locks went with the lease
	}
	return maps.Clone(p.owned)
}

// Leaving returns, in order, the owned shards that are now assigned to other members. The caller
// must stop their work, store their checkpoints, and Release them.
func (p *Pool) Leaving() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return nil
	}
	return slices.Sorted(maps.Keys(p.leaving))
}

// StandsBy reports whether this process is a healthy member without a shard: its registration is
// alive, the members leave no shard for it, and other members hold the locks of all shards. A lock
// vanishes with the lease of its owner, so a shard of a dead member does not count as held. A member
// that still waits for its shards does not stand by: it has not proved that it can work.
func (p *Pool) StandsBy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() || len(p.owned) > 0 || p.members.keys[p.memberKey()].Lease != p.lease.ID() {
		return false
	}
	assigned := p.assigned()
	for shard := range p.cfg.Ring {
		if lock, held := p.locks.keys[shardKey(p.lockPrefix(), shard)]; !held || lock.Lease == p.lease.ID() || assigned[shard] == p.cfg.ID {
			return false
		}
	}
	return true
}

// assigned returns the member of each shard by the present view. p.mu is held.
func (p *Pool) assigned() map[int]string {
	ids := make([]string, 0, len(p.members.keys))
	for _, kv := range p.members.keys {
		ids = append(ids, string(kv.Value))
	}
	return assign(ids, p.cfg.Ring)
}

// Changes receives a value after Owned or Leaving may have changed. Several changes may share one
// value. It is for one receiver.
func (p *Pool) Changes() <-chan struct{} { return p.changes }

// Lease returns the lease of this process's registration, or 0 without one. Keys under it vanish
// together with the registration.
func (p *Pool) Lease() coord.LeaseID {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return 0
	}
	return p.lease.ID()
}

// Release gives up a shard after the caller has stopped its work. Owned omits the shard from the
// start of the call. Release returns nil once other members can take the shard, or the error of ctx
// when ctx ends first. The Pool deletes the lock in either case. For a shard that is neither owned
// nor being released, Release does nothing. If the shard is still assigned to this member, the Pool
// soon takes it again.
func (p *Pool) Release(ctx context.Context, shard int) error {
	p.mu.Lock()
	// An earlier call may have started the release. This one waits for the same end.
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

// begin resets the state for a new lease, or for none if lease is nil.
func (p *Pool) begin(lease coord.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.releasing {
		close(r.done) // deleted with the lease, or soon
	}
	p.lease = lease
	p.owned, p.leaving = map[int]Lock{}, map[int]bool{}
	// Locks of the former lease cannot return, so their revisions are of no use.
	p.releasing, p.gone = map[int]*release{}, map[int]int64{}
	p.members, p.locks = view{}, view{}
	signal(p.changes)
}

// signal puts a value into a channel of capacity one, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
