// Package coordtest is the conformance suite of coord.Store. It checks the whole contract, so that
// code tested with memcoord behaves in the same way with etcd.
//
// It serves tests only and owns no store. The caller passes each case a store of its own without
// any keys. The suite does not close stores. Begin to read with Exercise.
//
// It is not for users and may change with any version.
package coordtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"dbcontroller.dev/internal/coord"
)

// Abandoner is an ability that the suite needs besides coord.Store: to simulate the death of a
// lease's holder.
type Abandoner interface {
	// Abandon stops the renewal of a lease without revoking it.
	Abandon(id coord.LeaseID)
}

// Compacter is an ability to discard history, as etcd does from time to time.
type Compacter interface {
	// Compact discards the history before a revision.
	Compact(ctx context.Context, revision int64) error
}

// Disconnecter is an ability to lose the connection, as networks do.
type Disconnecter interface {
	// Peer returns another client of the same database.
	Peer() coord.Store
	// Cut disconnects the store until heal, but not its peers. heal may run more than once.
	Cut() (heal func())
}

// patience is the time limit of a case. Only a failure reaches it.
const patience = 3 * time.Minute

// Exercise runs the suite. Stores must also implement Abandoner, Compacter and Disconnecter.
func Exercise(t *testing.T, newStore func(t *testing.T) coord.Store) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(*bundle)
	}{
		{"GetAndList", getAndList},
		{"PrefixEdges", prefixEdges},
		{"ValuesAreCopied", valuesAreCopied},
		{"CommitConditions", commitConditions},
		{"CreateOrMod", createOrMod},
		{"RecreateIsAnotherKey", recreate},
		{"ConflictLeavesNothing", conflictLeavesNothing},
		{"ConflictBringsTheFirstKey", conflictBringsTheFirstKey},
		{"CommitIsOneRevision", commitIsOneRevision},
		{"CommitWithoutEffect", commitWithoutEffect},
		{"CommitLimits", commitLimits},
		{"CommitWithContextOver", commitWithContextOver},
		{"ConcurrentIncrements", concurrentIncrements},
		{"WatchDeliversAll", watchDeliversAll},
		{"WatchResumes", watchResumes},
		{"FollowMissesNothing", followMissesNothing},
		{"WatchOnlyPrefix", watchOnlyPrefix},
		{"WatchEnds", watchEnds},
		{"WatchCompacted", watchCompacted},
		{"WatchIdleOutlivesCompaction", watchIdle},
		{"WatchUnderConcurrentWrites", watchConcurrent},
		{"LeaseIsKeptAlive", leaseKept},
		{"LeaseExpires", leaseExpires},
		{"LeaseCloseDeletesAtOnce", leaseClose},
		{"LeaseLostRefusesPut", leaseLost},
		{"LeaseOfKeyMoves", leaseMoves},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Cases wait for leases, so they run in parallel.
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			c.run(&bundle{T: t, ctx: ctx, Store: newStore(t)})
		})
	}
}

// bundle is a case with its test, its store and its time limit.
type bundle struct {
	*testing.T
	coord.Store
	ctx context.Context
}

func (b *bundle) put(key, value string) int64 {
	b.Helper()
	return b.commit(nil, coord.Op{Key: key, Value: []byte(value)})
}

func (b *bundle) delete(key string) int64 {
	b.Helper()
	return b.commit(nil, coord.Op{Key: key, Delete: true})
}

func (b *bundle) commit(conditions []coord.Condition, ops ...coord.Op) int64 {
	b.Helper()
	rev, err := b.Commit(b.ctx, conditions, ops)
	if err != nil {
		b.Fatalf("Commit(%v, %v): %v", conditions, ops, err)
	}
	return rev
}

// refuse commits and expects an error.
func (b *bundle) refuse(want error, conditions []coord.Condition, ops ...coord.Op) {
	b.Helper()
	if rev, err := b.Commit(b.ctx, conditions, ops); !errors.Is(err, want) {
		b.Fatalf("Commit(%v, %v) = %d, %v, want %v", conditions, ops, rev, err, want)
	}
}

func (b *bundle) get(key string) coord.KV {
	b.Helper()
	kv, err := b.Get(b.ctx, key)
	if err != nil {
		b.Fatalf("Get(%s): %v", key, err)
	}
	return kv
}

func (b *bundle) absent(key string) {
	b.Helper()
	if kv, err := b.Get(b.ctx, key); !errors.Is(err, coord.ErrNotFound) {
		b.Fatalf("Get(%s) = %v, %v, want ErrNotFound", key, kv, err)
	}
}

func (b *bundle) list(prefix string) ([]coord.KV, int64) {
	b.Helper()
	kvs, rev, err := b.List(b.ctx, prefix)
	if err != nil {
		b.Fatalf("List(%s): %v", prefix, err)
	}
	return kvs, rev
}

func (b *bundle) follow(prefix string) ([]coord.KV, coord.Watch) {
	b.Helper()
	kvs, _, w, err := b.Follow(b.ctx, prefix)
	if err != nil {
		b.Fatalf("Follow(%s): %v", prefix, err)
	}
	b.Cleanup(w.Close)
	return kvs, w
}

func (b *bundle) watch(prefix string) coord.Watch {
	b.Helper()
	_, w := b.follow(prefix)
	return w
}

// disconnecter returns the store, and a case of its own over a peer.
func (b *bundle) disconnecter() (Disconnecter, *bundle) {
	b.Helper()
	d, ok := b.Store.(Disconnecter)
	if !ok {
		b.Fatalf("%T cannot Cut", b.Store)
	}
	return d, &bundle{T: b.T, Store: d.Peer(), ctx: b.ctx}
}

// cut disconnects the store until heal, at the latest until the end of the case.
func (b *bundle) cut(d Disconnecter) (heal func()) {
	heal = d.Cut()
	b.Cleanup(heal)
	return heal
}

// next returns at least n events.
func (b *bundle) next(w coord.Watch, n int) []coord.Event {
	b.Helper()
	var events []coord.Event
	for len(events) < n {
		more, err := w.Next(b.ctx)
		if err != nil {
			b.Fatalf("Next after %v: %v", events, err)
		}
		if len(more) == 0 {
			b.Fatal("Next returned neither events nor an error")
		}
		events = append(events, more...)
	}
	return events
}

func (b *bundle) grant(ttl time.Duration) coord.Lease {
	b.Helper()
	l, err := b.Grant(b.ctx, ttl)
	if err != nil {
		b.Fatalf("Grant: %v", err)
	}
	b.Cleanup(func() { _ = l.Close(context.WithoutCancel(b.ctx)) }) // the store may be closed already
	return l
}

func (b *bundle) abandon(l coord.Lease) {
	b.Helper()
	a, ok := b.Store.(Abandoner)
	if !ok {
		b.Fatalf("%T cannot Abandon leases", b.Store)
	}
	a.Abandon(l.ID())
}

func (b *bundle) compact(revision int64) {
	b.Helper()
	c, ok := b.Store.(Compacter)
	if !ok {
		b.Fatalf("%T cannot Compact", b.Store)
	}
	if err := c.Compact(b.ctx, revision); err != nil {
		b.Fatalf("Compact: %v", err)
	}
}

func mod(key string, revision int64) []coord.Condition {
	return []coord.Condition{{Key: key, Revision: revision}}
}

func created(key string, revision int64) []coord.Condition {
	return []coord.Condition{{Key: key, Create: true, Revision: revision}}
}

func putOp(key, value string) coord.Op { return coord.Op{Key: key, Value: []byte(value)} }
