package syncer

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/record"
)

// readAhead is the next page of a range, which a worker reads while it writes the page before.
// Without it the source and this process would be idle while the target's journal syncs.
//
// The page ages between its read and its write, as any page does while its process sleeps. That is
// safe because permission to write is requested after the read, and the write uses the tokens
// granted with it.
type readAhead struct {
	task *rangeTask
	from record.Cursor
	page chan record.Page // closed without a page if the read failed
	stop context.CancelFunc
}

// freshFor is the maximum age of a page after a pause of the worker. An older page would bring back
// records deleted meanwhile, until the comparison removes them.
const freshFor = 5 * time.Second

// readAhead starts to read a page. It returns nil while copies are throttled, since a read would
// load the source and the page would grow old.
func (e *Engine) readAhead(ctx context.Context, t *rangeTask, from record.Cursor) *readAhead {
	if e.Pacer.Cause() != throttle.CauseNone {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	a := &readAhead{task: t, from: from, page: make(chan record.Page, 1), stop: stop}
	rest := record.Range{From: from, To: t.rest.To}
	go func() {
		defer close(a.page)
		// A failed read leaves the channel empty. The worker then reads itself and meets the error.
		if page, err := e.scan(ctx, t.kind, rest); err == nil {
			a.page <- page
		}
	}()
	return a
}

// fits reports whether the page is the next one of a range without a worker. a may be nil. e.mu is
// held.
func (a *readAhead) fits(e *Engine) bool {
	if a == nil || a.task.taken {
		return false
	}
	s := e.shards[a.task.shard]
	return s != nil && !s.leaving && s.todo[a.task.name] == a.task && bytes.Equal(a.task.rest.From, a.from)
}

// take waits for the page and returns it, or false if there is none. a may be nil.
func (a *readAhead) take() (record.Page, bool) {
	if a == nil {
		return record.Page{}, false
	}
	defer a.stop()
	page, ok := <-a.page
	return page, ok
}

// drop cancels the read and waits for its end. a may be nil.
func (a *readAhead) drop() {
	if a != nil {
		a.stop()
		for range a.page { //nolint:revive // what was read is not needed
		}
	}
}

// scan reads a page of a range. If the kind's records are read as groups, it reads keys only.
func (e *Engine) scan(ctx context.Context, kind string, rest record.Range) (page record.Page, err error) {
	err = e.unfenced(ctx, func() error {
		src, err := e.sourceView(ctx, record.Version{})
		if err != nil {
			return err
		}
		page, err = e.Source.Scan(ctx, record.ScanRequest{
			Token: src.Tokens[kind], Range: rest, Limit: e.pageOf(kind), KeysOnly: !e.Direction.Whole(kind), NotBefore: src.NotBefore,
		})
		return err
	})
	if err != nil {
		return page, fmt.Errorf("scan %s: %w", kind, err)
	}
	return page, nil
}
