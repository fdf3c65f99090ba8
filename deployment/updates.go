package deployment

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"dbcontroller.dev/backfill"
	"dbcontroller.dev/coord"
	"dbcontroller.dev/upgradestate"
)

var (
	_ backfill.Deployments = (*Store)(nil)
	_ backfill.Journal     = (*Store)(nil)
)

func (s *Store) updateKey(id string, parts ...string) string {
	return s.key(append([]string{"updates", id}, parts...)...)
}

func (s *Store) updateCheckpointKey(id string, shard int) string {
	return s.updateKey(id, "checkpoints", shardKey(shard))
}

// updatingPrefix is apart from the runs, for what is below it is leased and watched.
func (s *Store) updatingPrefix() string { return s.key("updating", "") }

func (s *Store) CreateUpdatePlan(ctx context.Context, d upgradestate.Deployment, p backfill.Plan) (backfill.Plan, error) {
	id := d.Update.Run()
	if err := s.forgetUpdates(ctx, d); err != nil {
		return backfill.Plan{}, fmt.Errorf("create plan of update %s: %w", id, err)
	}
	value, err := json.Marshal(p)
	if err != nil {
		return backfill.Plan{}, fmt.Errorf("create plan of update %s: %w", id, err)
	}
	key := s.updateKey(id, "plan")
	wait := newBackOff()
	for {
		stands, found, err := s.LoadUpdatePlan(ctx, id)
		if err != nil || found {
			return stands, err
		}
		_, err = s.coord.Commit(ctx, []coord.Condition{{Key: key}}, []coord.Op{{Key: key, Value: value}})
		if err != nil && !again(err) {
			return backfill.Plan{}, fmt.Errorf("create plan of update %s: %w", id, err)
		}
		if err == nil {
			return p, nil
		}
		if err := pause(ctx, wait); err != nil {
			return backfill.Plan{}, fmt.Errorf("create plan of update %s: %w", id, err)
		}
	}
}

// forgetUpdates removes what is kept of runs that are over. A record that is not the
// present one any longer does not know which those are.
func (s *Store) forgetUpdates(ctx context.Context, d upgradestate.Deployment) error {
	prefix, keep := s.key("updates", ""), s.updateKey(d.Update.Run(), "")
	kvs, _, err := s.coord.List(ctx, prefix)
	if err != nil {
		return err
	}
	var ops []coord.Op
	for _, kv := range kvs {
		if !strings.HasPrefix(kv.Key, keep) {
			ops = append(ops, coord.Op{Key: kv.Key, Delete: true})
		}
	}
	present := coord.Condition{Key: s.recordKey(), Revision: d.Revision}
	for chunk := range slices.Chunk(ops, coord.MaxOps-1) {
		_, err := s.coord.Commit(ctx, []coord.Condition{present}, chunk)
		if err != nil && !again(err) {
			return err
		}
		if err != nil {
			return nil // they disturb nothing, and go with the next run
		}
	}
	return nil
}

func (s *Store) LoadUpdatePlan(ctx context.Context, id string) (p backfill.Plan, found bool, err error) {
	if found, err = s.load(ctx, s.updateKey(id, "plan"), &p); err != nil {
		return backfill.Plan{}, false, fmt.Errorf("load plan of update %s: %w", id, err)
	}
	return p, found, nil
}

func (s *Store) LoadUpdateCheckpoint(ctx context.Context, id string, shard int) (c backfill.Checkpoint, found bool, err error) {
	if found, err = s.load(ctx, s.updateCheckpointKey(id, shard), &c); err != nil {
		return backfill.Checkpoint{}, false, fmt.Errorf("load checkpoint of update %s in shard %d: %w", id, shard, err)
	}
	return c, found, nil
}

func (s *Store) SaveUpdateCheckpoint(ctx context.Context, id string, shard int, c backfill.Checkpoint, conditions ...coord.Condition) error {
	value, err := json.Marshal(c)
	if err == nil {
		err = s.commitOwned(ctx, conditions, []coord.Op{{Key: s.updateCheckpointKey(id, shard), Value: value}})
	}
	if err != nil {
		return fmt.Errorf("save checkpoint of update %s in shard %d: %w", id, shard, err)
	}
	return nil
}

func (s *Store) PublishUpdateProgress(ctx context.Context, p backfill.Progress, lease coord.LeaseID) error {
	value, err := json.Marshal(p)
	if err == nil {
		_, err = s.coord.Commit(ctx, nil, []coord.Op{{Key: s.updatingPrefix() + url.PathEscape(p.Owner), Value: value, Lease: lease}})
	}
	if err != nil {
		return fmt.Errorf("publish progress of the update: %w", err)
	}
	return nil
}

// UpdateProgress is what controllers say of their parts in the run. What cannot be read counts as
// not said; State names it.
func (s *Store) UpdateProgress(ctx context.Context) ([]backfill.Progress, error) {
	ps, _, err := s.updateProgress(ctx)
	return ps, err
}

func (s *Store) updateProgress(ctx context.Context) (ps []backfill.Progress, bad []error, err error) {
	kvs, _, err := s.coord.List(ctx, s.updatingPrefix())
	if err != nil {
		return nil, nil, fmt.Errorf("progress of the update: %w", err)
	}
	ps, bad = decodeUpdating(kvs)
	return ps, bad, nil
}

func decodeUpdating(kvs []coord.KV) (ps []backfill.Progress, bad []error) {
	// Of a shard that several claim, the one who published last counts.
	kvs = slices.SortedFunc(slices.Values(kvs), func(a, b coord.KV) int { return int(a.Mod - b.Mod) })
	return decodeAll[backfill.Progress](kvs)
}
