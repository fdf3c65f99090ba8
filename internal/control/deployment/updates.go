package deployment

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/backfill"
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

// updatingPrefix is separate from the runs, because its keys are leased and watched.
func (s *Store) updatingPrefix() string { return s.key("updating", "") }

// CreateUpdatePlan implements backfill.Journal. Of several plans created at the same time, the
// first one wins and is returned to all.
func (s *Store) CreateUpdatePlan(ctx context.Context, d upgradestate.Deployment, p backfill.Plan) (backfill.Plan, error) {
	id := d.Update.Run()
	// Delete earlier runs first, so that their data does not pile up.
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

// forgetUpdates deletes the data of earlier runs. The commit requires that d is still the stored
// record, because an older record does not know the current run.
func (s *Store) forgetUpdates(ctx context.Context, d upgradestate.Deployment) error {
	prefix, keep := s.key("updates", ""), s.updateKey(d.Update.Run(), "")
	kvs, _, err := s.coord.List(ctx, prefix)
	if err != nil {
		return err
	}
	var ops []coord.Op
	for _, kv := range kvs {
		// Keep the current run, whose checkpoints are in use.
		if !strings.HasPrefix(kv.Key, keep) {
			ops = append(ops, coord.Op{Key: kv.Key, Delete: true})
		}
	}
	present := coord.Condition{Key: s.recordKey(), Revision: d.Revision}
	// The condition counts as one of the operations of a commit.
	for chunk := range slices.Chunk(ops, coord.MaxOps-1) {
		_, err := s.coord.Commit(ctx, []coord.Condition{present}, chunk)
		if err != nil && !again(err) {
			return err
		}
		if err != nil {
			return nil // harmless: the next run deletes them
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

// UpdateProgress returns the published progress of the controllers in the current run. It leaves
// out unreadable values; State names them.
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
	// If several controllers claim a shard, the latest value counts.
	kvs = slices.SortedFunc(slices.Values(kvs), func(a, b coord.KV) int { return int(a.Mod - b.Mod) })
	return decodeAll[backfill.Progress](kvs)
}
