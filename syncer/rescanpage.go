package syncer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// rescanPage compares one page of a range for the shards of the pass and repairs differences at
// once. Groups that still differ join the late set. It returns the number of records read.
func (e *Engine) rescanPage(ctx context.Context, t *rangeTask) (int, error) {
	e.mu.Lock()
	p, mine := e.pass, map[int]*shard{}
	// The pass has ended or was given up since the task was taken.
	if p == nil || !slices.Contains(p.tasks, t) {
		e.mu.Unlock()
		return 0, nil
	}
	var one *shard
	for s := range p.shards {
		mine[s.lock.Shard], one = s, s
	}
	e.mu.Unlock()
	page, ids, err := e.rescanScan(ctx, p, t, mine)
	if err != nil {
		return 0, err
	}
	notBefore := p.floor
	// A read older than the page could miss records of the page.
	if !t.target && page.Version.Compare(notBefore) > 0 {
		notBefore = page.Version
	}
	differ, err := e.differing(ctx, t, ids, notBefore)
	if err != nil {
		return 0, err
	}
	if !t.target && !upgradestate.Fenceable(e.current(), e.Direction.To()) {
		// The target cannot be renamed to stop old loaders. A guard in each record stops them
		// instead, so every group is written.
		differ = ids
	}
	var still []transform.GroupID
	if len(differ) > 0 {
		if err := e.bring(ctx, differ, notBefore, forRepair); err != nil {
			return 0, err
		}
		// A newer change or a refused write may still be in the way.
		if still, err = e.differing(ctx, t, differ, notBefore); err != nil {
			return 0, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t.taken, e.busy = false, time.Now()
	// The pass changed meanwhile. The repairs are valid, only the progress is not counted.
	if e.pass != p || !slices.Contains(p.tasks, t) {
		return len(page.Records), nil
	}
	for _, id := range still {
		s := mine[e.shardOf(id)]
		if s == nil {
			s = one // a target record by content, whose source is unknown
		}
		s.addDifferent(id)
	}
	p.compared += len(ids)
	p.repaired += len(differ) - len(still)
	t.rest.From = page.Next
	if page.Done {
		p.tasks = slices.DeleteFunc(p.tasks, func(x *rangeTask) bool { return x == t })
		e.endPass()
	}
	e.announce()
	return len(page.Records), nil
}

// rescanScan reads a page of keys and returns the groups of the pass's shards. It parks keys
// without a group, like a copy and a comparison.
func (e *Engine) rescanScan(ctx context.Context, p *pass, t *rangeTask, mine map[int]*shard) (page record.Page, ids []transform.GroupID, err error) {
	if page, err = e.scanKeys(ctx, p, t); err != nil {
		return page, nil, fmt.Errorf("scan %s: %w", t.kind, err)
	}
	groupOf := e.Direction.GroupOf
	if t.target {
		groupOf = e.Direction.GroupOfTarget
	}
	var ungrouped []ungroupedKey
	var orphans []transform.Orphan
	seen := map[transform.GroupID]bool{}
	for _, r := range page.Records {
		id, ok, err := groupOf(r.Kind, r.Key)
		switch {
		case !ok || seen[id]:
		case err != nil && t.target:
			orphans = append(orphans, transform.Orphan{Kind: r.Kind, Key: r.Key, Err: err})
		case err != nil:
			ungrouped = append(ungrouped, ungroupedKey{r.Kind, r.Key, err})
		case mine[e.shardOf(id)] != nil || t.target && e.byContent(id):
			// Only the lineage shows which source a target record by content comes from, so any
			// pass compares it.
			seen[id] = true
			ids = append(ids, id)
		}
	}
	if err := e.parkOrphans(ctx, orphans); err != nil {
		return page, nil, err
	}
	return page, ids, e.parkKeys(ctx, ungrouped, page.Version)
}

// scanKeys reads the keys of a page from the task's side.
func (e *Engine) scanKeys(ctx context.Context, p *pass, t *rangeTask) (page record.Page, err error) {
	err = e.unfenced(ctx, func() error {
		from := e.Source
		v, err := e.sourceView(ctx, p.floor)
		if t.target {
			from = e.Target
			v, err = e.targetView(ctx)
		}
		if err != nil {
			return err
		}
		page, err = from.Scan(ctx, record.ScanRequest{
			Token: v.Tokens[t.kind], Range: t.rest, Limit: e.cfg.Page, KeysOnly: true, NotBefore: v.NotBefore,
		})
		return err
	})
	return page, err
}

// differing returns the groups that differ. On the target's side it skips groups that a switch left
// there by a waiver, since those must not be deleted.
func (e *Engine) differing(ctx context.Context, t *rangeTask, ids []transform.GroupID, notBefore record.Version) ([]transform.GroupID, error) {
	set, err := e.compareGroups(ctx, ids, notBefore)
	if err != nil {
		return nil, err
	}
	var differ []transform.GroupID
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		_, differs := set[id]
		if p, parked := e.parked[id]; differs && !(t.target && parked && p.Kept) {
			differ = append(differ, id)
		}
	}
	return differ, nil
}
