package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

var (
	_ syncer.Deployments = (*Store)(nil)
	_ syncer.Journal     = (*Store)(nil)
)

// CreatePlan implements syncer.Journal. Of several plans created at the same time, the first one
// wins and is returned to all.
func (s *Store) CreatePlan(ctx context.Context, dir syncer.DirectionKey, p syncer.Plan) (syncer.Plan, error) {
	wait := newBackOff()
	for {
		stands, found, err := s.LoadPlan(ctx, dir)
		if err != nil || found {
			return stands, err
		}
		// Store the parts first: the plan counts as soon as its own key exists.
		value, err := s.storeParts(ctx, dir, p)
		if err != nil {
			return syncer.Plan{}, fmt.Errorf("create plan: %w", err)
		}
		_, err = s.coord.Commit(ctx,
			[]coord.Condition{{Key: s.planKey(dir)}}, []coord.Op{{Key: s.planKey(dir), Value: value}})
		switch {
		case err == nil:
			return p, nil
		case !again(err):
			return syncer.Plan{}, fmt.Errorf("create plan: %w", err)
		}
		if err := pause(ctx, wait); err != nil {
			return syncer.Plan{}, fmt.Errorf("create plan: %w", err)
		}
	}
}

// LoadPlan implements syncer.Journal.
func (s *Store) LoadPlan(ctx context.Context, dir syncer.DirectionKey) (p syncer.Plan, found bool, err error) {
	var head storedPlan
	found, err = s.load(ctx, s.planKey(dir), &head)
	if err == nil && found {
		p, err = s.loadParts(ctx, dir, head)
	}
	if err != nil {
		return syncer.Plan{}, false, fmt.Errorf("load plan: %w", err)
	}
	return p, found, nil
}

// LoadCheckpoint implements syncer.Journal.
func (s *Store) LoadCheckpoint(ctx context.Context, dir syncer.DirectionKey, shard int) (c syncer.Checkpoint, found bool, err error) {
	found, err = s.load(ctx, s.checkpointKey(dir, shard), &c)
	if err != nil {
		return syncer.Checkpoint{}, false, fmt.Errorf("load checkpoint of shard %d: %w", shard, err)
	}
	return c, found, nil
}

// load reads a key into v. Only an absent key is "not found". If another error counted as absent,
// the copy would start again.
func (s *Store) load(ctx context.Context, key string, v any) (found bool, err error) {
	kv, err := s.coord.Get(ctx, key)
	if errors.Is(err, coord.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(kv.Value, v); err != nil {
		return false, corrupt(key, err)
	}
	return true, nil
}

// checkpointBytes bounds a commit of checkpoints. etcd refuses requests above 1.5 MiB.
const checkpointBytes = coord.MaxBytes / 2

// SaveCheckpoints implements syncer.Journal. It splits checkpoints that exceed one commit. Each
// commit compares only the locks of its own shards, and all other conditions. After a failure the
// earlier commits stay, which is harmless: every checkpoint is independent.
func (s *Store) SaveCheckpoints(ctx context.Context, dir syncer.DirectionKey, cs map[int]syncer.Checkpoint, conditions ...coord.Condition) error {
	// The lock of each shard must go with its own checkpoint.
	locks, others := s.splitConditions(cs, conditions)
	var ops []coord.Op
	conds := slices.Clone(others)
	size := 0
	flush := func() error {
		if len(ops) == 0 {
			return nil
		}
		err := s.commitOwned(ctx, conds, ops)
		conds, ops, size = slices.Clone(others), nil, 0
		return err
	}
	// Sorted, so that the split does not depend on the order of the map.
	for _, shard := range slices.Sorted(maps.Keys(cs)) {
		value, err := json.Marshal(cs[shard])
		if err != nil {
			return fmt.Errorf("save checkpoint of shard %d: %w", shard, err)
		}
		lock := locks[shard]
		// Flush before the limit is exceeded, and count the lock and the checkpoint together.
		if len(conds)+len(ops)+len(lock)+1 > coord.MaxOps || size+len(value) > checkpointBytes {
			if err := flush(); err != nil {
				return fmt.Errorf("save checkpoints: %w", err)
			}
		}
		conds = append(conds, lock...)
		ops = append(ops, coord.Op{Key: s.checkpointKey(dir, shard), Value: value})
		size += len(value)
	}
	if err := flush(); err != nil {
		return fmt.Errorf("save checkpoints: %w", err)
	}
	return nil
}

// splitConditions separates the locks of the saved shards from the other conditions, which go with
// every commit.
func (s *Store) splitConditions(cs map[int]syncer.Checkpoint, conditions []coord.Condition) (locks map[int][]coord.Condition, others []coord.Condition) {
	byKey := make(map[string]int, len(cs))
	for shard := range cs {
		byKey[s.key("shards", shardKey(shard))] = shard
	}
	locks = map[int][]coord.Condition{}
	for _, c := range conditions {
		if shard, ok := byKey[c.Key]; ok {
			locks[shard] = append(locks[shard], c)
		} else {
			others = append(others, c)
		}
	}
	return locks, others
}

// commitOwned commits operations that may be repeated, as long as the conditions hold. It retries
// an unknown outcome, unless the store is full.
func (s *Store) commitOwned(ctx context.Context, conditions []coord.Condition, ops []coord.Op) error {
	wait := newBackOff()
	for {
		_, err := s.coord.Commit(ctx, conditions, ops)
		switch {
		case err == nil:
			return nil
		// The operations are unconditional, so one of the caller's conditions failed.
		case errors.Is(err, coord.ErrConflict):
			return ErrOwnership
		// In a full store a retry would hide the reason until there is room.
		case !errors.Is(err, coord.ErrUnknown), errors.Is(err, coord.ErrNoSpace):
			return err
		}
		// Give up with the unknown outcome, because the commit may have happened.
		if perr := pause(ctx, wait); perr != nil {
			return err
		}
	}
}

// PublishProgress implements syncer.Journal. The progress is deleted with the lease.
func (s *Store) PublishProgress(ctx context.Context, owner string, ps []syncer.Progress, lease coord.LeaseID) error {
	value, err := json.Marshal(ps)
	if err != nil {
		return fmt.Errorf("publish progress: %w", err)
	}
	// No condition: only the owner writes its key, and a late value only shows for a moment.
	if _, err := s.coord.Commit(ctx, nil, []coord.Op{{Key: s.progressKey(owner), Value: value, Lease: lease}}); err != nil {
		return fmt.Errorf("publish progress: %w", err)
	}
	return nil
}

// Progress returns the latest published progress of the shards, by shard. It leaves out unreadable
// values; State names them.
func (s *Store) Progress(ctx context.Context) ([]syncer.Progress, error) {
	ps, _, err := s.progress(ctx)
	return ps, err
}

// AllProgress is Progress for decisions that need the progress of every owner. An unreadable value
// is an error.
func (s *Store) AllProgress(ctx context.Context) ([]syncer.Progress, error) {
	ps, bad, err := s.progress(ctx)
	if err == nil {
		err = firstOf(bad)
	}
	return ps, err
}

func (s *Store) progress(ctx context.Context) (ps []syncer.Progress, bad []error, err error) {
	kvs, _, err := s.coord.List(ctx, s.key("progress", ""))
	if err != nil {
		return nil, nil, fmt.Errorf("progress: %w", err)
	}
	ps, bad = decodeProgress(kvs)
	return ps, bad, nil
}

// decodeProgress keeps the latest value of a shard that several owners published. The earlier owner
// has lost the shard and not noticed it yet.
func decodeProgress(kvs []coord.KV) (ps []syncer.Progress, bad []error) {
	// In the order of publication, so that the latest value of a shard wins.
	kvs = slices.SortedFunc(slices.Values(kvs), func(a, b coord.KV) int { return int(a.Mod - b.Mod) })
	byShard := map[int]syncer.Progress{}
	published, bad := decodeAll[[]syncer.Progress](kvs)
	for _, p := range slices.Concat(published...) {
		byShard[p.Shard] = p
	}
	ps = make([]syncer.Progress, 0, len(byShard))
	for _, shard := range slices.Sorted(maps.Keys(byShard)) {
		ps = append(ps, byShard[shard])
	}
	return ps, bad
}

// ForgetBefore deletes the plans, checkpoints, parked groups and waivers of the directions of
// earlier epochs. It may be repeated after an error.
func (s *Store) ForgetBefore(ctx context.Context, epoch uint64) error {
	err := s.forget(ctx, func(dir string) bool {
		of, _, _ := strings.Cut(dir, "-")
		// A direction begins with its epoch.
		n, err := strconv.ParseUint(of, 10, 64)
		return err == nil && n < epoch
	})
	if err != nil {
		return fmt.Errorf("forget directions before epoch %d: %w", epoch, err)
	}
	return nil
}

// ForgetVersion deletes the plans, checkpoints, parked groups and waivers of the directions from
// and to a version of d. It may be repeated after an error.
func (s *Store) ForgetVersion(ctx context.Context, d upgradestate.Deployment, version string) error {
	// Versions may contain dashes, which also separate the parts of a direction. So compare only
	// pairs of known versions.
	var pairs []string
	// A version takes part in directions as source and as target.
	for _, ns := range d.Namespaces {
		pairs = append(pairs, version+"-"+ns.Version+"-", ns.Version+"-"+version+"-")
	}
	err := s.forget(ctx, func(dir string) bool {
		_, of, _ := strings.Cut(dir, "-")
		return slices.ContainsFunc(pairs, func(pair string) bool { return strings.HasPrefix(of, pair) })
	})
	if err != nil {
		return fmt.Errorf("forget directions of %s: %w", version, err)
	}
	return nil
}

// forget deletes the data of the directions that over selects.
func (s *Store) forget(ctx context.Context, over func(dir string) bool) error {
	var ops []coord.Op
	for _, what := range []string{"plans", "checkpoints", "parked"} {
		prefix := s.key(what, "")
		kvs, _, err := s.coord.List(ctx, prefix)
		if err != nil {
			return err
		}
		for _, kv := range kvs {
			escaped, _, _ := strings.Cut(strings.TrimPrefix(kv.Key, prefix), "/")
			// A key that cannot be parsed belongs to no direction; leave it alone.
			if dir, err := url.PathUnescape(escaped); err == nil && over(dir) {
				ops = append(ops, coord.Op{Key: kv.Key, Delete: true})
			}
		}
	}
	for chunk := range slices.Chunk(ops, coord.MaxOps) {
		if err := s.commitOwned(ctx, nil, chunk); err != nil {
			return err
		}
	}
	return nil
}
