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

	"dbcontroller.dev/coord"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

var (
	_ syncer.Deployments = (*Store)(nil)
	_ syncer.Journal     = (*Store)(nil)
)

func (s *Store) CreatePlan(ctx context.Context, dir syncer.DirectionKey, p syncer.Plan) (syncer.Plan, error) {
	wait := newBackOff()
	for {
		stands, found, err := s.LoadPlan(ctx, dir)
		if err != nil || found {
			return stands, err
		}
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

func (s *Store) LoadCheckpoint(ctx context.Context, dir syncer.DirectionKey, shard int) (c syncer.Checkpoint, found bool, err error) {
	found, err = s.load(ctx, s.checkpointKey(dir, shard), &c)
	if err != nil {
		return syncer.Checkpoint{}, false, fmt.Errorf("load checkpoint of shard %d: %w", shard, err)
	}
	return c, found, nil
}

// load reads a key into v. Only an absent key is "not found": an error that was taken
// for it would have a copy begin again.
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

// checkpointBytes bounds a commit of checkpoints: etcd refuses requests of 1.5 MiB.
const checkpointBytes = coord.MaxBytes / 2

// SaveCheckpoints implements syncer.Journal. What does not fit into one commit is saved
// in several, each whole; the locks of shards are then only compared where their own
// checkpoints are. A failed one leaves those before it saved, which is harmless: every
// checkpoint stands for itself.
func (s *Store) SaveCheckpoints(ctx context.Context, dir syncer.DirectionKey, cs map[int]syncer.Checkpoint, conditions ...coord.Condition) error {
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
	for _, shard := range slices.Sorted(maps.Keys(cs)) {
		value, err := json.Marshal(cs[shard])
		if err != nil {
			return fmt.Errorf("save checkpoint of shard %d: %w", shard, err)
		}
		lock := locks[shard]
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

// splitConditions sorts out the locks of the shards that are saved. Every other
// condition goes with each commit.
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

// commitOwned commits what may be repeated as it is, as long as the conditions hold.
func (s *Store) commitOwned(ctx context.Context, conditions []coord.Condition, ops []coord.Op) error {
	wait := newBackOff()
	for {
		_, err := s.coord.Commit(ctx, conditions, ops)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, coord.ErrConflict):
			return ErrOwnership
		case !errors.Is(err, coord.ErrUnknown):
			return err
		}
		if perr := pause(ctx, wait); perr != nil {
			return err
		}
	}
}

func (s *Store) PublishProgress(ctx context.Context, owner string, ps []syncer.Progress, lease coord.LeaseID) error {
	value, err := json.Marshal(ps)
	if err != nil {
		return fmt.Errorf("publish progress: %w", err)
	}
	if _, err := s.coord.Commit(ctx, nil, []coord.Op{{Key: s.progressKey(owner), Value: value, Lease: lease}}); err != nil {
		return fmt.Errorf("publish progress: %w", err)
	}
	return nil
}

// Progress returns what the owners of shards last published, by shard. What cannot be read counts
// as not published; State names it.
func (s *Store) Progress(ctx context.Context) ([]syncer.Progress, error) {
	ps, _, err := s.progress(ctx)
	return ps, err
}

// AllProgress is Progress for a decision that needs that of all owners: one that cannot be read is
// an error.
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

// decodeProgress keeps, of a shard that several claim, what was published last: the
// earlier owner has lost it and not said so yet.
func decodeProgress(kvs []coord.KV) (ps []syncer.Progress, bad []error) {
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

// ForgetBefore removes what is kept for the directions of earlier epochs: plans,
// checkpoints, parked groups and waivers. It may be called again after an error.
func (s *Store) ForgetBefore(ctx context.Context, epoch uint64) error {
	err := s.forget(ctx, func(dir string) bool {
		of, _, _ := strings.Cut(dir, "-")
		n, err := strconv.ParseUint(of, 10, 64)
		return err == nil && n < epoch
	})
	if err != nil {
		return fmt.Errorf("forget directions before epoch %d: %w", epoch, err)
	}
	return nil
}

// ForgetVersion removes what is kept for directions from and to a version of d. It may be
// called again after an error.
func (s *Store) ForgetVersion(ctx context.Context, d upgradestate.Deployment, version string) error {
	// Versions may have dashes, as directions have between their parts: only pairs of
	// versions that are known are compared.
	var pairs []string
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

// forget removes what is kept for some directions.
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
