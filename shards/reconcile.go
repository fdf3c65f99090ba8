package shards

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord"
)

// reconcile moves ownership one step towards the assignment. Its views may be late: it takes a lock
// only if that is free, and recognizes a released lock in a late view by its revision.
func (p *Pool) reconcile(ctx context.Context, lease coord.Lease) error {
	// First, since another member may be waiting for these locks.
	if err := p.finishReleases(ctx); err != nil {
		return err
	}
	take, err := p.decide(lease)
	if err != nil || len(take) == 0 {
		return err
	}
	return p.take(ctx, lease, take)
}

// finishReleases deletes the locks that the engine has released.
func (p *Pool) finishReleases(ctx context.Context) error {
	p.mu.Lock()
	pending := slices.Collect(maps.Values(p.releasing))
	p.mu.Unlock()
	return inBatches(pending, func(batch []*release) error {
		conditions, ops := make([]coord.Condition, len(batch)), make([]coord.Op, len(batch))
		for i, r := range batch {
			conditions[i] = r.lock.Condition()
			ops[i] = coord.Op{Key: r.lock.Key, Delete: true}
		}
		_, err := p.store.Commit(ctx, conditions, ops)
		if errors.Is(err, coord.ErrConflict) && len(batch) == 1 {
			err = nil // the lock is gone already
		}
		if err != nil {
			return fmt.Errorf("release shards: %w", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, r := range batch {
			// begin may have reset the state during the commit.
			if p.releasing[r.lock.Shard] == r {
				delete(p.releasing, r.lock.Shard)
				p.gone[r.lock.Shard] = r.lock.Create
				close(r.done)
			}
		}
		return nil
	})
}

// decide updates owned and leaving shards from the views and returns the shards to take.
func (p *Pool) decide(lease coord.Lease) (take []int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A missing view would look like an empty ring.
	if p.members.rev == 0 || p.locks.rev == 0 {
		return nil, nil
	}
	// Without the registration the other members assign these shards to themselves.
	if p.members.keys[p.memberKey()].Lease != lease.ID() {
		return nil, errUnregistered
	}
	assigned := p.assigned()
	changed := false
	var lost []int
	for shard := range p.cfg.Ring {
		key := shardKey(p.lockPrefix(), shard)
		seen, there := p.locks.keys[key]
		own, owned := p.owned[shard]
		if owned && seen.Create != own.Create && p.locks.rev >= own.Create {
			// Another process deleted the lock. It may be free, so it may be taken below.
			delete(p.owned, shard)
			delete(p.leaving, shard)
			p.gone[shard] = own.Create
			owned, changed = false, true
			lost = append(lost, shard)
		}
		_, releasing := p.releasing[shard]
		if !owned && !releasing && there && seen.Lease == lease.ID() && seen.Create > p.gone[shard] {
			// The lock is ours: a commit with an unknown outcome got through.
			p.owned[shard] = Lock{Shard: shard, Key: key, Create: seen.Create}
			owned, changed = true, true
		}
		mine := assigned[shard] == p.cfg.ID
		// The assignment of an owned shard has changed in either direction.
		if owned && p.leaving[shard] == mine {
			if mine {
				delete(p.leaving, shard)
			} else {
				p.leaving[shard] = true
			}
			changed = true
		}
		// A lock that the view still shows is taken after its deletion is seen.
		if mine && !owned && !releasing && !there {
			take = append(take, shard)
		}
	}
	if len(lost) > 0 {
		p.cfg.Log.Warn("locks of shards were taken away", zap.String("shards", Ranges(lost)), zap.Int("count", len(lost)))
	}
	if changed {
		signal(p.changes)
	}
	return take, nil
}

// take creates locks. It skips a lock that another member holds by now. The view will show the
// lock, and later its deletion.
func (p *Pool) take(ctx context.Context, lease coord.Lease, shards []int) error {
	return inBatches(shards, func(batch []int) error {
		conditions, ops := make([]coord.Condition, len(batch)), make([]coord.Op, len(batch))
		for i, shard := range batch {
			key := shardKey(p.lockPrefix(), shard)
			conditions[i] = coord.Condition{Key: key}
			ops[i] = coord.Op{Key: key, Value: []byte(p.cfg.ID), Lease: lease.ID()}
		}
		rev, err := p.store.Commit(ctx, conditions, ops)
		if errors.Is(err, coord.ErrConflict) && len(batch) == 1 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("take shards: %w", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, shard := range batch {
			p.owned[shard] = Lock{Shard: shard, Key: conditions[i].Key, Create: rev}
		}
		signal(p.changes)
		return nil
	})
}

// inBatches calls commit with the maximum number of items per transaction, of one condition and one
// operation each. If a batch meets a conflict, it commits the items one by one, so that one taken
// lock does not hold up the others.
func inBatches[T any](items []T, commit func([]T) error) error {
	for batch := range slices.Chunk(items, coord.MaxOps/2) {
		err := commit(batch)
		if err == nil {
			continue
		}
		if !errors.Is(err, coord.ErrConflict) {
			return err
		}
		for _, item := range batch {
			if err := commit([]T{item}); err != nil {
				return err
			}
		}
	}
	return nil
}
