package syncer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/record"
)

// TestMemoryOfHelpers: each helper that works brings memory for one read. It is given back when the
// helper rests, after the reads that have it.
func TestMemoryOfHelpers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 2
		e := &Engine{
			Parts: Parts{Pacer: throttle.New(throttle.Config{})}, cfg: Config{Workers: workers},
			holding: newHolding(workers), news: make(chan struct{}),
		}
		ctx, stop := context.WithCancel(t.Context())
		g, ctx := errgroup.WithContext(ctx)
		h := &help{Engine: e, workers: g}
		room := func(want int) {
			t.Helper()
			n := 0
			for e.holding.TryAcquire(heldUnits) {
				n++
			}
			e.holding.Release(int64(n) * heldUnits)
			if n != want {
				t.Errorf("there is room for %d reads, want %d", n, want)
			}
		}
		employ := func(helpers int) {
			t.Helper()
			if err := h.employ(ctx, helpers); err != nil {
				t.Fatal(err)
			}
			room(workers + helpers)
		}
		room(workers)
		for _, helpers := range []int{5, mostHelpers, 1} {
			employ(helpers)
		}
		var reads []*held
		for range workers + 1 {
			read, err := e.hold(ctx, 0)
			if err != nil {
				t.Fatal(err)
			}
			reads = append(reads, read)
		}
		rested := make(chan error, 1)
		go func() { rested <- h.employ(ctx, 0) }()
		select {
		case err := <-rested:
			t.Errorf("the memory of a read was given back: %v", err)
		case <-time.After(time.Minute): // of the bubble
		}
		reads[0].release()
		if err := <-rested; err != nil {
			t.Error(err)
		}
		for _, read := range reads[1:] {
			read.release()
		}
		room(workers)
		stop()
		_ = g.Wait()
	})
}

// TestFirstPages are larger over a distance, unless bulk work is limited.
func TestFirstPages(t *testing.T) {
	t.Parallel()
	const near = pageBytes / firstSize
	for name, tc := range map[string]struct {
		helpers, rate, want int
	}{
		"near":             {0, 0, near},
		"far":              {1, 0, pageBytes / 1000},
		"far, but limited": {1, 10, near},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &Engine{
				Parts: Parts{Pacer: throttle.New(throttle.Config{MaxRate: tc.rate})}, cfg: Config{Page: 2000}, helpers: tc.helpers,
				recordSize: map[string]int{}, expected: map[string]int{},
			}
			e.expect("kind", record.Size{Records: 10, Bytes: 5000})
			if n := e.pageOf("kind"); n != tc.want {
				t.Errorf("%d records, want %d", n, tc.want)
			}
			e.recordSize["kind"] = pageBytes / 50
			if n := e.pageOf("kind"); n != 50 {
				t.Errorf("%d records behind the first page, want 50", n)
			}
		})
	}
}
