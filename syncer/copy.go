package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"dbcontroller/record"
	"dbcontroller/transform"
)

// copyWorker copies ranges of owned shards, a page at a time, and then compares them.
// Several workers run; a range is taken by one of them at a time.
func (e *Engine) copyWorker(ctx context.Context) error {
	for {
		var n int
		var t *rangeTask
		err := e.await(ctx, func() bool {
			if e.over() || e.record.Upgrade != nil && e.record.Upgrade.State != "INITIAL_SYNCING" {
				return false
			}
			n, t = e.takeTask()
			return t != nil
		})
		if err != nil {
			return err
		}
		if e.isCopy(n, t) {
			err = e.persist(ctx, "copy "+t.name, func() error { return e.copyPage(ctx, n, t) })
		} else {
			err = e.persist(ctx, "compare "+t.name, func() error { return e.comparePage(ctx, n, t) })
		}
		if errors.Is(err, errOver) {
			continue
		}
		if err != nil {
			return err
		}
	}
}

// takeTask picks a range that nobody works on: copies first, then comparisons of shards
// that are copied. e.mu is held.
func (e *Engine) takeTask() (int, *rangeTask) {
	owned := make([]int, 0, len(e.shards))
	for n, s := range e.shards {
		if !s.leaving {
			owned = append(owned, n)
		}
	}
	slices.Sort(owned)
	for _, n := range owned {
		for _, t := range e.shards[n].todo {
			if !t.taken {
				t.taken = true
				return n, t
			}
		}
	}
	for _, n := range owned {
		for _, t := range e.shards[n].verify {
			if !t.taken {
				t.taken = true
				return n, t
			}
		}
	}
	return 0, nil
}

func (e *Engine) isCopy(n int, t *rangeTask) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.shards[n]
	return s != nil && s.todo[t.name] == t
}

// copyPage copies one page of a range and moves the range on.
func (e *Engine) copyPage(ctx context.Context, n int, t *rangeTask) error {
	if err := e.awaitApply(ctx); err != nil {
		return err
	}
	whole := e.Direction.Whole(t.kind)
	var page record.Page
	err := e.unfenced(ctx, func() error {
		src, err := e.sourceTokens(ctx)
		if err != nil {
			return err
		}
		page, err = e.Source.Scan(ctx, record.ScanRequest{Token: src[t.kind], Range: t.rest, Limit: e.cfg.Page, KeysOnly: !whole})
		return err
	})
	if err != nil {
		return fmt.Errorf("scan %s: %w", t.kind, err)
	}
	// By what was read: the last page of a range is short.
	if err := e.limiter.WaitN(ctx, len(page.Records)); err != nil {
		return fmt.Errorf("rate limit: %w", err)
	}
	if whole {
		err = e.loadRecords(ctx, page)
	} else {
		err = e.syncKeys(ctx, page)
	}
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t.taken, e.busy = false, time.Now()
	s := e.shards[n]
	if s == nil || s.todo[t.name] != t {
		return nil // the shard was lost meanwhile; its next owner goes on from the checkpoint
	}
	s.copied += int64(len(page.Records))
	s.dirty = true
	t.rest.From = page.Next
	if page.Done {
		delete(s.todo, t.name)
		s.done = append(s.done, t.name)
		if len(s.todo) == 0 {
			e.Log.Info("shard is copied", zap.Int("shard", n), zap.Int64("records", s.copied))
		}
	}
	e.announce()
	return nil
}

// loadRecords transforms a page whose records are whole groups, inserts it, and brings
// over one by one what was there already.
func (e *Engine) loadRecords(ctx context.Context, page record.Page) error {
	batch := record.Batch{Epoch: e.cfg.Epoch, Groups: make([]record.GroupWrite, 0, len(page.Records))}
	ids := make([]transform.GroupID, 0, len(page.Records))
	var ungrouped []ungroupedKey
	for i, r := range page.Records {
		id, ok, err := e.Direction.GroupOf(r.Kind, r.Key)
		if err != nil {
			ungrouped = append(ungrouped, ungroupedKey{r.Kind, r.Key, err})
			continue
		}
		if !ok {
			continue
		}
		w, err := e.groupWrite(id, page.Version, transform.Group{Name: id.Name, Records: page.Records[i : i+1]}, nil)
		if err != nil {
			if err := e.park(ctx, id, page.Version, err); err != nil {
				return err
			}
			continue
		}
		batch.Groups = append(batch.Groups, w)
		ids = append(ids, id)
	}
	if err := e.parkKeys(ctx, ungrouped, page.Version); err != nil {
		return err
	}
	if len(ids) == 0 {
		return nil
	}
	var err error
	if batch.Tokens, err = e.targetTokens(ctx); err != nil {
		return err
	}
	results, err := e.Target.Load(ctx, batch)
	if errors.Is(err, record.ErrFenced) {
		err = errors.Join(err, e.refresh(ctx))
	}
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	again, err := e.settle(ctx, ids, page.Version, results)
	if err != nil {
		return err
	}
	return e.syncGroups(ctx, again, page.Version)
}

// syncKeys brings over the groups that the keys of a page belong to, read as groups.
func (e *Engine) syncKeys(ctx context.Context, page record.Page) error {
	var ids []transform.GroupID
	var ungrouped []ungroupedKey
	seen := map[transform.GroupID]bool{}
	for _, r := range page.Records {
		id, ok, err := e.Direction.GroupOf(r.Kind, r.Key)
		if err != nil {
			ungrouped = append(ungrouped, ungroupedKey{r.Kind, r.Key, err})
		} else if ok && !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	if err := e.parkKeys(ctx, ungrouped, page.Version); err != nil {
		return err
	}
	return e.bring(ctx, ids, page.Version, true)
}
