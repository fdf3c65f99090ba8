package syncer

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"dbcontroller/record"
	"dbcontroller/shards"
	"dbcontroller/transform"
)

// groupsAtOnce is how many groups are read and applied together: one snapshot read and
// one transaction of about this size are near the optimum of the database.
const groupsAtOnce = 500

// changedTries is how often groups that somebody else is writing are read again at once.
const changedTries = 20

// syncGroups brings groups to the target as the source holds them now, no older than
// notBefore. When it returns nil each of them is applied, was newer already, or is parked.
func (e *Engine) syncGroups(ctx context.Context, ids []transform.GroupID, notBefore record.Version) error {
	return e.bring(ctx, ids, notBefore, false)
}

// bring is syncGroups; copying says that the groups are met by a copy.
func (e *Engine) bring(ctx context.Context, ids []transform.GroupID, notBefore record.Version, copying bool) error {
	groups, units := e.split(ids)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(e.cfg.Workers)
	for chunk := range slices.Chunk(units, groupsAtOnce) {
		g.Go(func() error { return e.syncUnits(ctx, chunk, notBefore, copying) })
	}
	for chunk := range slices.Chunk(groups, groupsAtOnce) {
		g.Go(func() error {
			return e.persist(ctx, "apply changes", func() error {
				// Another writer of the same group, a copy beside a change, is no failure:
				// what it left behind is read again.
				var err error
				for try := 0; err == nil && len(chunk) > 0 && try < changedTries; try++ {
					err = e.unfenced(ctx, func() (err error) {
						chunk, err = e.syncOnce(ctx, chunk, notBefore)
						return err
					})
				}
				if err == nil && len(chunk) > 0 {
					err = fmt.Errorf("%d groups keep changing under the write", len(chunk))
				}
				return err
			})
		})
	}
	return g.Wait()
}

// syncOnce makes one attempt and returns the groups that have to be read again.
func (e *Engine) syncOnce(ctx context.Context, ids []transform.GroupID, notBefore record.Version) ([]transform.GroupID, error) {
	if err := e.awaitApply(ctx); err != nil {
		return ids, err
	}
	src, err := e.sourceTokens(ctx)
	if err != nil {
		return ids, err
	}
	dst, err := e.targetTokens(ctx)
	if err != nil {
		return ids, err
	}
	found, version, err := transform.ReadSource(ctx, e.Source, e.Direction, src, ids, notBefore)
	if err != nil {
		return ids, err
	}
	wanting := slices.DeleteFunc(slices.Clone(ids), func(id transform.GroupID) bool { return !e.Direction.NeedsHave(id) })
	have, err := transform.ReadTarget(ctx, e.Target, e.Direction, dst, wanting)
	if err != nil {
		return ids, err
	}
	batch := record.Batch{Tokens: dst, Epoch: e.cfg.Epoch}
	var written []transform.GroupID
	for _, id := range ids {
		var complement *transform.Held
		if h, read := have[id]; read {
			complement = &h
		}
		w, err := e.groupWrite(id, version, found[id], complement)
		if err != nil {
			if err := e.park(ctx, id, version, err); err != nil {
				return ids, err
			}
			continue
		}
		batch.Groups = append(batch.Groups, w)
		written = append(written, id)
	}
	if len(written) == 0 {
		return nil, nil
	}
	results, err := e.Target.Apply(ctx, batch)
	if err != nil {
		return ids, err
	}
	return e.settle(ctx, written, version, results)
}

// settle acts on the answers: parks what was refused, unparks what now fits, and
// returns what has to be read again.
func (e *Engine) settle(ctx context.Context, ids []transform.GroupID, version record.Version, results []record.Result) ([]transform.GroupID, error) {
	var again []transform.GroupID
	for i, r := range results {
		switch r.Outcome {
		case record.Applied:
			if err := e.unpark(ctx, ids[i], version); err != nil {
				return ids, err
			}
		case record.Stale:
		case record.Changed:
			again = append(again, ids[i])
		case record.Refused:
			if err := e.park(ctx, ids[i], version, r.Err); err != nil {
				return ids, err
			}
		default:
			return ids, fmt.Errorf("apply: %v for group %q", r.Outcome, ids[i].Name)
		}
	}
	return again, nil
}

// groupWrite transforms one group: what comes out is written, what the target holds
// beyond it and an anchor that is not part of it become tombstones. have is nil when
// the complement was not read.
func (e *Engine) groupWrite(id transform.GroupID, version record.Version, src transform.Group, have *transform.Held) (record.GroupWrite, error) {
	w := record.GroupWrite{Group: id.Name, Version: version, Anchor: -1}
	complement := transform.Group{Name: id.Name}
	if have != nil {
		complement = have.Group
	}
	var out []record.Record
	if len(src.Records) > 0 {
		var err error
		if out, err = e.Direction.Transform(id, src, complement); err != nil {
			return w, err
		}
	}
	anchorKind, anchorKey := e.Direction.Anchor(id)
	add := func(r record.Write) {
		if r.Kind == anchorKind && r.Key == anchorKey {
			w.Anchor = len(w.Writes)
		}
		w.Writes = append(w.Writes, r)
	}
	for _, r := range out {
		add(record.Write{Kind: r.Kind, Key: r.Key, Doc: r.Doc})
	}
	for _, h := range complement.Records {
		if !slices.ContainsFunc(out, func(r record.Record) bool { return r.Kind == h.Kind && r.Key == h.Key }) {
			add(record.Write{Kind: h.Kind, Key: h.Key})
		}
	}
	if w.Anchor < 0 {
		add(record.Write{Kind: anchorKind, Key: anchorKey})
	}
	if have != nil {
		w.Writes[w.Anchor].Expect = &have.Anchor
	}
	return w, nil
}

// shardOf is the shard of a group.
func (e *Engine) shardOf(id transform.GroupID) int { return shards.Of(id.Name, e.cfg.Ring) }
