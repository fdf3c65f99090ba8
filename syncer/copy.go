package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// bulkWorker copies ranges of owned shards, a page at a time, and then compares them.
// Several workers run; a range is taken by one of them at a time.
func (e *Engine) bulkWorker(ctx context.Context) error {
	records := 0 // of the page before
	var ahead *readAhead
	defer func() { ahead.drop() }()
	for {
		rested := time.Now()
		err := e.await(ctx, func() bool { return e.nextTask(nil) != nil })
		if err != nil {
			return err
		}
		// Before a range is taken: what is held back does not hold a range.
		begun := time.Now()
		if err := e.Pacer.Wait(ctx, records); err != nil {
			return err
		}
		if time.Since(rested) > freshFor {
			ahead.drop()
			ahead = nil
		}
		e.mu.Lock()
		t := e.nextTask(ahead)
		fits := t != nil && ahead.fits(e)
		if t != nil {
			t.taken = true
		}
		e.mu.Unlock()
		if !fits {
			ahead.drop()
			ahead = nil
		}
		if records = 0; t == nil {
			continue
		}
		page, span := e.Tracer.Start(ctx, t.job.String()+" page", trace.WithTimestamp(begun))
		if t.job == copies {
			e.since(page, Wait, begun)
		}
		err = e.persist(page, t.what(), func() (err error) {
			switch t.job {
			case copies:
				was := ahead
				ahead = nil // a second attempt reads anew
				records, ahead, err = e.copyPage(page, t, was)
			case compares:
				records, err = e.comparePage(page, t)
			case rescans:
				records, err = e.rescanPage(page, t)
			}
			return err
		})
		endSpan(span, err, attribute.Int("shard", t.shard), attribute.Int("records", records))
		if err != nil && !errors.Is(err, errOver) {
			return err
		}
	}
}

// nextTask is a range that nobody works on, if bulk work is to be done now: copies first, of them
// one whose next page is read already, then comparisons of shards that are copied, then a rescan.
// e.mu is held.
func (e *Engine) nextTask(ahead *readAhead) *rangeTask {
	if e.over() || e.record.Upgrade != nil && e.record.Upgrade.State != upgradestate.InitialSyncing {
		return nil
	}
	if ahead.fits(e) {
		return ahead.task
	}
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
				return t
			}
		}
	}
	if !e.roomForLate() {
		return nil
	}
	free := func(t *rangeTask) bool { return !t.taken }
	for _, n := range owned {
		if i := slices.IndexFunc(e.shards[n].verify, free); i >= 0 {
			return e.shards[n].verify[i]
		}
	}
	if e.pass != nil {
		if i := slices.IndexFunc(e.pass.tasks, free); i >= 0 {
			return e.pass.tasks[i]
		}
	}
	return nil
}

// copyPage copies one page of a range, which may be read already, moves the range on and returns
// how many records it has read. The page after it is read meanwhile.
func (e *Engine) copyPage(ctx context.Context, t *rangeTask, read *readAhead) (records int, ahead *readAhead, err error) {
	begun := time.Now()
	if _, err := e.awaitApply(ctx); err != nil {
		read.drop()
		return 0, nil, err
	}
	begun = e.since(ctx, Wait, begun)
	page, ok := read.take()
	if !ok {
		if page, err = e.scan(ctx, t.kind, t.rest); err != nil {
			return 0, nil, err
		}
	}
	e.since(ctx, Read, begun)
	e.sized(t.kind, page)
	if !page.Done {
		ahead = e.readAhead(ctx, t, page.Next)
	}
	if e.Direction.Whole(t.kind) {
		err = e.loadRecords(ctx, page)
	} else {
		err = e.syncKeys(ctx, page)
	}
	if err != nil {
		ahead.drop()
		return 0, nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t.taken, e.busy = false, time.Now()
	s := e.shards[t.shard]
	if s == nil || s.todo[t.name] != t {
		return len(page.Records), ahead, nil // the shard was lost meanwhile; its next owner goes on from the checkpoint
	}
	s.copied += int64(len(page.Records))
	s.dirty = true
	t.moveTo(page.Next)
	if page.Done {
		delete(s.todo, t.name)
		s.done[t.name] = true
		if len(s.todo) == 0 {
			e.milestones()
			e.wakeHousekeeping()
		}
	}
	e.announce()
	return len(page.Records), ahead, nil
}

// pageBytes is about how many bytes of records a page has. Every worker holds two, and what is
// made of one, several times over. firstSize is what a record is taken to have until a page was
// read.
const (
	pageBytes = 2 << 20
	firstSize = 20 << 10
)

// pageOf is how many records of a kind are read at once.
func (e *Engine) pageOf(kind string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	size, known := e.recordSize[kind]
	if !known {
		size = firstSize
	}
	return max(1, min(e.cfg.Page, pageBytes/max(1, size)))
}

// sized notes how large the records of a page are.
func (e *Engine) sized(kind string, page record.Page) {
	if len(page.Records) == 0 {
		return
	}
	bytes := 0
	for _, r := range page.Records {
		bytes += len(r.Doc)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recordSize[kind] = bytes / len(page.Records)
}

// loadRecords transforms a page whose records are whole groups, inserts it without guards, and
// applies what was there already, or cannot be stored. What a load can do wrong the comparison
// finds, which begins when nobody can load any longer. From then on whole pages are applied.
func (e *Engine) loadRecords(ctx context.Context, page record.Page) error {
	ids := make([]transform.GroupID, 0, len(page.Records))
	at := make([]int, 0, len(page.Records)) // of each group's record in the page
	var ungrouped []ungroupedKey
	for i, r := range page.Records {
		id, ok, err := e.Direction.GroupOf(r.Kind, r.Key)
		if err != nil {
			ungrouped = append(ungrouped, ungroupedKey{r.Kind, r.Key, err})
		} else if ok {
			ids, at = append(ids, id), append(at, i)
		}
	}
	if err := e.parkKeys(ctx, ungrouped, page.Version); err != nil {
		return err
	}
	if len(ids) == 0 {
		return nil
	}
	toks, loads, err := e.awaitLoad(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	if !loads {
		defer e.since(ctx, Again, begun)
		return e.bring(ctx, ids, page.Version, forCopy)
	}
	ids, at, there := e.unchanged(ids, at)
	t := e.transfer(transform.View{}, e.target(toks), e.loadWhole)
	made := t.Fresh(ids, page.Version, func(i int) transform.Group {
		return transform.Group{Name: ids[i].Name, Records: page.Records[at[i] : at[i]+1]}
	})
	begun = e.since(ctx, Transform, begun)
	again, err := t.Put(ctx, made)
	begun = e.since(ctx, Write, begun)
	if errors.Is(err, record.ErrFenced) {
		err = errors.Join(err, e.refresh(ctx))
	}
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	defer e.since(ctx, Again, begun)
	return e.bring(ctx, append(again, there...), page.Version, forCopy)
}

// loadWhole inserts groups. Of one that cannot be stored as a whole nothing may stay: it will be
// parked, and a person may leave it behind.
func (e *Engine) loadWhole(ctx context.Context, b record.Batch) ([]record.Result, error) {
	results, err := e.Target.Load(ctx, b)
	if err != nil {
		return nil, err
	}
	halves := record.Batch{Tokens: b.Tokens, Epoch: b.Epoch, Repair: true}
	for i, r := range results {
		if r.Outcome != record.Refused {
			continue
		}
		results[i] = record.Result{Outcome: record.Changed}
		if g := b.Groups[i]; len(g.Writes) > 1 {
			g.Writes = slices.Clone(g.Writes)
			for k := range g.Writes {
				g.Writes[k].Doc, g.Writes[k].Expect = nil, nil
			}
			halves.Groups = append(halves.Groups, g)
		}
	}
	if len(halves.Groups) > 0 {
		_, err = e.Target.Apply(ctx, halves)
	}
	return results, err
}

// syncKeys copies the groups that the keys of a page belong to, read as groups.
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
	defer e.since(ctx, Again, time.Now())
	return e.bring(ctx, ids, page.Version, forCopy)
}
