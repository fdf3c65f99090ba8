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

// bulkWorker copies, compares and rescans ranges of owned shards, one page at a time. Several
// workers run. Each range has one worker at a time. number is that of a helper, or noHelper.
func (e *Engine) bulkWorker(ctx context.Context, number int) error {
	records := 0 // in the previous page, for the Pacer
	var ahead *readAhead
	defer func() { ahead.drop() }()
	for {
		rested := time.Now()
		err := e.await(ctx, func() bool {
			due := e.helps(number) && e.nextTask(nil) != nil
			if !due && !e.bulkLeft() {
				e.Pacer.Rest()
			}
			return due
		})
		if err != nil {
			return err
		}
		// The worker waits before it takes a range, so that a throttled worker blocks no range.
		begun := time.Now()
		if err := e.Pacer.Wait(ctx, records); err != nil {
			return err
		}
		// An old page would bring back records that were deleted since it was read.
		if time.Since(rested) > freshFor {
			ahead.drop()
			ahead = nil
		}
		// The shard may have been lost during the waits, so the choice is made only now. A helper may have
		// to rest.
		e.mu.Lock()
		var t *rangeTask
		if e.helps(number) {
			t = e.nextTask(ahead)
		}
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
				ahead = nil // a retry reads again
				records, ahead, err = e.copyPage(page, t, was, number == noHelper)
			case compares:
				records, err = e.comparePage(page, t)
			case rescans:
				records, err = e.rescanPage(page, t)
			}
			return err
		})
		endSpan(span, err, attribute.Int("shard", t.shard), attribute.Int("records", records))
		// After errOver the record watcher ends the engine, with the right reason.
		if err != nil && !errors.Is(err, errOver) {
			return err
		}
	}
}

// nextTask returns a free range for bulk work, or nil. Copies come first, and among them the range
// whose next page is already read; then comparisons of copied shards; then a rescan. e.mu is held.
func (e *Engine) nextTask(ahead *readAhead) *rangeTask {
	// Bulk work during a switch would slow down clients and the drain.
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
	// All workers take the lowest shards first, so that shards become ready one by one.
	slices.Sort(owned)
	for _, n := range owned {
		for _, t := range e.shards[n].todo {
			if !t.taken {
				return t
			}
		}
	}
	// Comparisons add to the late set. They wait until it has room.
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

// copyPage copies one page of a range and advances the range. read is the page if it was read
// ahead. If further is set, the next page is read during the write and returned as ahead. records is
// the number of records read.
func (e *Engine) copyPage(ctx context.Context, t *rangeTask, read *readAhead, further bool) (records int, ahead *readAhead, err error) {
	begun := time.Now()
	// Waits for permission first: a page read before a long wait would be old when it is written.
	if _, err := e.awaitApply(ctx); err != nil {
		read.drop()
		return 0, nil, err
	}
	begun = e.since(ctx, Wait, begun)
	page, ok := read.take()
	if !ok {
		// No page was read ahead, or its read failed. A failure shows here.
		if page, err = e.scan(ctx, t.kind, t.rest); err != nil {
			return 0, nil, err
		}
	}
	e.since(ctx, Read, begun)
	e.sized(t.kind, page)
	if further && !page.Done {
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
		// The shard was lost. Its next owner resumes from the checkpoint.
		return len(page.Records), ahead, nil
	}
	s.copied += int64(len(page.Records))
	s.dirty = true
	t.moveTo(page.Next)
	if page.Done {
		delete(s.todo, t.name)
		s.done[t.name] = true
		if len(s.todo) == 0 {
			e.milestones()
			// Housekeeping plans the comparison. Without the wake-up it would wait for its tick.
			e.wakeHousekeeping()
		}
	}
	e.announce()
	return len(page.Records), ahead, nil
}

// pageBytes is the approximate size of a page. Each worker holds two pages, and several times the
// size of one in transformed records. firstSize is the assumed size of a record before the first
// page is read.
const (
	pageBytes = 2 << 20
	firstSize = 20 << 10
)

// pageOf returns the number of records of a kind per read.
func (e *Engine) pageOf(kind string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	size, known := e.recordSize[kind]
	if !known {
		size = firstSize
	}
	most := e.cfg.Page
	// Over a distance a page waits the same time for its answer, however small it is.
	if e.helping() {
		most *= 2
		if expected := e.expected[kind]; !known && expected > 0 {
			size = expected
		}
	}
	return max(1, min(most, pageBytes/max(1, size)))
}

// expect notes the size of a kind's records for first pages over a distance. It is twice the average,
// since those of the first pages may be larger than others. The first pages of near databases stay small:
// they are no loss of time, and a limited rate begins gently.
func (e *Engine) expect(kind string, size record.Size) {
	if size.Records == 0 || size.Bytes == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expected[kind] = int(2 * size.Bytes / size.Records)
}

// sized records the average record size of a page.
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

// loadRecords transforms a page of single-record groups and inserts it without guards. It applies
// the groups that exist already or cannot be stored. Loads may go wrong in ways that the comparison
// finds, which starts after loaders are fenced. From then on loadRecords applies whole pages.
func (e *Engine) loadRecords(ctx context.Context, page record.Page) error {
	ids := make([]transform.GroupID, 0, len(page.Records))
	at := make([]int, 0, len(page.Records)) // the record of each group, as an index into the page
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
	// The tokens come from the record that allows loading, so that a fence stops this insert.
	toks, loads, err := e.awaitLoad(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	// Loaders are fenced. An insert without a guard could now undo a comparison.
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
	// The retry needs the new names.
	if errors.Is(err, record.ErrFenced) {
		err = errors.Join(err, e.refresh(ctx))
	}
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	defer e.since(ctx, Again, begun)
	return e.bring(ctx, append(again, there...), page.Version, forCopy)
}

// loadWhole inserts groups. If a group cannot be stored as a whole, it deletes the stored part: the
// group will be parked, and an operator may waive it.
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
		results[i] = record.Result{Outcome: record.Changed} // bring applies the group and finds the reason
		// A group with one write has no part to delete.
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

// syncKeys copies the groups of a page of keys, for kinds that are read as groups.
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
