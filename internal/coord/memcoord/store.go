// Package memcoord implements coord.Store in memory. It replaces etcdcoord in tests and in
// simulations of whole systems, inside or outside a testing/synctest bubble.
//
// A New store is one client of a new, empty database. Client returns another client of the same
// database, like another process. A client can be cut off, paused, healed and given lost answers
// (fault.go). So tests can simulate everything that etcd may do to a process.
//
// It gives the guarantees of package coord and passes the same suite (coordtest). It has no
// goroutines of its own. A lease needs a timer only while its client cannot renew it. So a bubble
// without faults can become idle.
//
// It does not persist data, and it does not imitate etcd's latency. Begin to read with New.
//
// It is not for users and may change with any version.
package memcoord

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"

	"dbcontroller.dev/internal/coord"
)

// keptRevisions is the minimum number of revisions that watches can resume from. Older ones are
// compacted, like in etcd's auto compaction.
const keptRevisions = 1 << 16

// database is the state that all clients share. Its lock also guards the clients' own fields, which
// avoids an order of locks. There is no contention that would justify a second lock.
type database struct {
	mu        sync.Mutex
	rev       int64
	keys      map[string]coord.KV
	history   []revision // ascending
	compacted int64      // watches that need a lower revision fail
	leases    map[coord.LeaseID]*lease
	lastLease coord.LeaseID
	changed   chan struct{} // closed and replaced at each revision
}

type revision struct {
	rev    int64
	events []coord.Event
}

// Store is one client of an in-memory database.
type Store struct {
	db *database

	// Guarded by db.mu.
	cut    chan struct{} // nil: connected; Heal closes it
	paused bool          // the process is stopped and does not see leases end
	unseen []*lease      // leases that ended while paused
	fault  func([]coord.Condition, []coord.Op) Fault
}

var _ coord.Store = (*Store)(nil)

// New returns a client of a new, empty database.
func New() *Store {
	return &Store{db: &database{
		rev:     1, // as in etcd
		keys:    map[string]coord.KV{},
		leases:  map[coord.LeaseID]*lease{},
		changed: make(chan struct{}),
	}}
}

// Client returns another client of the same database.
func (s *Store) Client() *Store { return &Store{db: s.db} }

func (s *Store) Get(ctx context.Context, key string) (coord.KV, error) {
	if err := s.connected(ctx); err != nil {
		return coord.KV{}, fmt.Errorf("get %s: %w", key, err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	kv, ok := s.db.keys[key]
	if !ok {
		return coord.KV{}, fmt.Errorf("get %s: %w", key, coord.ErrNotFound)
	}
	// The caller may change its copy.
	kv.Value = slices.Clone(kv.Value)
	return kv, nil
}

func (s *Store) List(ctx context.Context, prefix string) ([]coord.KV, int64, error) {
	if err := s.connected(ctx); err != nil {
		return nil, 0, fmt.Errorf("list %s: %w", prefix, err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	var kvs []coord.KV
	for _, key := range slices.Sorted(maps.Keys(s.db.keys)) {
		if strings.HasPrefix(key, prefix) {
			kv := s.db.keys[key]
			kv.Value = slices.Clone(kv.Value)
			kvs = append(kvs, kv)
		}
	}
	return kvs, s.db.rev, nil
}

func (s *Store) ListPage(ctx context.Context, prefix, after string, limit int) ([]coord.KV, error) {
	kvs, _, err := s.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	kvs = slices.DeleteFunc(kvs, func(kv coord.KV) bool { return kv.Key <= after })
	return kvs[:min(limit, len(kvs))], nil
}

func (s *Store) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (int64, error) {
	if err := coord.CheckCommit(conditions, ops); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("commit: %w", err) // nothing was sent
	}
	if err := s.connected(ctx); err != nil {
		return 0, fmt.Errorf("commit: %w: %w", coord.ErrUnknown, err)
	}
	// f runs before the lock is taken, so it can commit through another client.
	fault := s.nextFault(conditions, ops)
	if fault == LoseRequest {
		return 0, fmt.Errorf("commit: %w: request lost", coord.ErrUnknown)
	}
	s.db.mu.Lock()
	rev, err := s.db.commit(conditions, ops)
	s.db.mu.Unlock()
	// A lost answer also hides a conflict.
	if fault == LoseAnswer {
		return 0, fmt.Errorf("commit: %w: answer lost", coord.ErrUnknown)
	}
	if err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	return rev, nil
}

func (db *database) commit(conditions []coord.Condition, ops []coord.Op) (int64, error) {
	for _, c := range conditions {
		kv := db.keys[c.Key] // zero revisions if absent, as in etcd
		have := kv.Mod
		if c.Create {
			have = kv.Create
		}
		if have != c.Revision || c.Value != nil && !bytes.Equal(kv.Value, c.Value) {
			first := db.keys[conditions[0].Key]
			first.Key, first.Value = conditions[0].Key, slices.Clone(first.Value)
			return 0, fmt.Errorf("%s: %w", c.Key, &coord.ConflictError{First: first})
		}
	}
	// Check all leases before the first write, so that a refused commit changes nothing.
	for _, op := range ops {
		if !op.Delete && op.Lease != 0 && db.leases[op.Lease] == nil {
			return 0, fmt.Errorf("put %s: %w", op.Key, coord.ErrLeaseLost)
		}
	}
	events := make([]coord.Event, 0, len(ops))
	rev := db.rev + 1
	for _, op := range ops {
		old, there := db.keys[op.Key]
		// A key belongs to at most one lease: the earlier one must not delete it later.
		if there && old.Lease != 0 {
			delete(db.leases[old.Lease].keys, op.Key)
		}
		if op.Delete {
			if there {
				delete(db.keys, op.Key)
				events = append(events, coord.Event{Deleted: true, KV: coord.KV{Key: op.Key, Mod: rev}})
			}
			continue
		}
		kv := coord.KV{Key: op.Key, Value: slices.Clone(op.Value), Create: rev, Mod: rev, Lease: op.Lease}
		if there {
			kv.Create = old.Create
		}
		if op.Lease != 0 {
			db.leases[op.Lease].keys[op.Key] = true
		}
		db.keys[op.Key] = kv
		events = append(events, coord.Event{KV: kv})
	}
	db.publish(events)
	return db.rev, nil
}

// publish adds a revision with events. Without events it adds none.
func (db *database) publish(events []coord.Event) {
	if len(events) == 0 {
		return
	}
	db.rev++
	db.history = append(db.history, revision{rev: db.rev, events: events})
	// Compact only at twice the number, so that not each commit copies the history.
	if len(db.history) > 2*keptRevisions {
		db.compact(db.rev - keptRevisions)
	}
	close(db.changed)
	db.changed = make(chan struct{})
}

// Compact discards the history before rev, like etcd's compaction.
func (s *Store) Compact(_ context.Context, rev int64) error {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if rev > s.db.rev {
		return fmt.Errorf("compact at %d: the store is at %d", rev, s.db.rev)
	}
	s.db.compact(rev)
	return nil
}

func (db *database) compact(rev int64) {
	db.compacted = max(db.compacted, rev)
	i := sort.Search(len(db.history), func(i int) bool { return db.history[i].rev >= rev })
	db.history = slices.Clone(db.history[i:])
}
