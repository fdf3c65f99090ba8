package syncer_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
)

// halting is a source whose pages are noted, and a target that takes no page until it is let.
type halting struct {
	let     chan struct{}
	mu      sync.Mutex
	scanned []record.Range
	loaded  int
	copied  []record.Range // what had been scanned by the last load
}

type haltingPlace struct {
	record.Namespace
	h *halting
}

func (p haltingPlace) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	p.h.mu.Lock()
	p.h.scanned = append(p.h.scanned, req.Range)
	p.h.mu.Unlock()
	return p.Namespace.Scan(ctx, req)
}

func (p haltingPlace) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	select {
	case <-p.h.let:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.h.mu.Lock()
	p.h.loaded += len(b.Groups)
	p.h.copied = slices.Clone(p.h.scanned)
	p.h.mu.Unlock()
	return p.Namespace.Load(ctx, b)
}

// TestReadsAhead: while a page is written the next one is read, and no further one, and it is what
// is written then: no page is read twice. An engine that ends in between leaves nothing behind.
func TestReadsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const records = 40
		var want []string
		for i := range records {
			name := fmt.Sprintf("r%02d", i)
			w.put("a1", name, i)
			want = append(want, fmt.Sprintf("%s=%d", name, i))
		}
		h := &halting{let: make(chan struct{})}
		all := w.owner(0, 1, 2, 3)
		start := func() *running {
			return w.engineWith(all, func(p *syncer.Parts) {
				p.Source, p.Target = haltingPlace{p.Source, h}, haltingPlace{p.Target, h}
			}, func(c *syncer.Config) { c.Workers, c.Page = 1, 1 })
		}
		r := start()
		synctest.Wait()
		h.mu.Lock()
		if s := h.scanned; len(s) != 2 || !bytes.Equal(s[0].To, s[1].To) || bytes.Equal(s[0].From, s[1].From) {
			t.Errorf("pages %v are read while the first is written", s)
		}
		h.scanned = nil
		h.mu.Unlock()
		r.stop(t)
		close(h.let)
		r = start()
		w.eventually("everything is copied", func() bool { return w.holds(w.dst, "v2", "a2") == strings.Join(want, " ") })
		r.stop(t)
		h.mu.Lock()
		defer h.mu.Unlock()
		seen := map[string]bool{}
		for _, page := range h.copied {
			at := fmt.Sprintf("%x-%x", page.From, page.To)
			if seen[at] && at != "-" { // a look at whole kinds, not at ranges of them
				t.Errorf("page %s is read twice", at)
			}
			seen[at] = true
		}
		if h.loaded != records {
			t.Errorf("%d records are loaded, want %d", h.loaded, records)
		}
	})
}
