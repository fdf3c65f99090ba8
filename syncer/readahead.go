package syncer

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/throttle"
)

// readAhead is the page of a range that a worker reads while it writes the one before: otherwise
// the source, and the processors here, stand idle while the target's journal is waited for.
//
// A page that was read ahead is one that lay for a while between its read and its write, as any
// does whose process is asleep. What makes it good nevertheless is asked for after it was read,
// with the tokens that it is written by.
type readAhead struct {
	task *rangeTask
	from record.Cursor
	page chan record.Page // is closed without one where it could not be read
	stop context.CancelFunc
}

// freshFor is how long a worker may rest before it reads anew what it has read ahead: what was
// deleted meanwhile would come over, and be there until it is compared.
const freshFor = 5 * time.Second

// readAhead begins to read a page, unless copies are held back: they are to put no load on the
// source then, and a page would grow old.
func (e *Engine) readAhead(ctx context.Context, t *rangeTask, from record.Cursor) *readAhead {
	if e.Pacer.Cause() != throttle.CauseNone {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	a := &readAhead{task: t, from: from, page: make(chan record.Page, 1), stop: stop}
	rest := record.Range{From: from, To: t.rest.To}
	go func() {
		defer close(a.page)
		if page, err := e.scan(ctx, t.kind, rest); err == nil { // who needs it meets the error himself
			a.page <- page
		}
	}()
	return a
}

// fits reports whether the page is the next one of its range, which nobody works on. e.mu is held.
func (a *readAhead) fits(e *Engine) bool {
	if a == nil || a.task.taken {
		return false
	}
	s := e.shards[a.task.shard]
	return s != nil && !s.leaving && s.todo[a.task.name] == a.task && bytes.Equal(a.task.rest.From, a.from)
}

// take returns the page, once it is read; false if there is none.
func (a *readAhead) take() (record.Page, bool) {
	if a == nil {
		return record.Page{}, false
	}
	defer a.stop()
	page, ok := <-a.page
	return page, ok
}

// drop ends the reading, and waits for its end.
func (a *readAhead) drop() {
	if a != nil {
		a.stop()
		for range a.page { //nolint:revive // what was read is not needed
		}
	}
}

// scan reads a page of what is left of a range: the keys alone where records are read as groups.
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
