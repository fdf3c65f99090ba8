package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// pages counts what is read of a source as a whole.
type pages struct {
	record.Namespace
	n *atomic.Int64
}

func (p pages) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	p.n.Add(1)
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
		return record.Page{}, ctx.Err()
	}
	return p.Namespace.Scan(ctx, req)
}

// paced is a world with a long copy, and its engine.
func paced(t *testing.T, cfg throttle.Config) (w *world, e *running, read *atomic.Int64) {
	t.Helper()
	w, read = newWorld(t), new(atomic.Int64)
	for i := range 2000 {
		w.put("a1", fmt.Sprintf("item-%d", i), i)
	}
	e = w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
		p.Source, p.Pacer = pages{p.Source, read}, throttle.New(cfg)
	})
	w.eventually("some pages", func() bool { return read.Load() > 20 })
	return w, e, read
}

// standsStill fails the test if pages are read, or changes are not followed, or no shard
// reports why.
func (w *world) standsStill(e *running, read *atomic.Int64, why string) {
	w.t.Helper()
	<-time.After(2 * time.Second) // pages under way, and the next look
	before := read.Load()
	w.put("b1", "followed", int(before))
	w.eventually("what changes is followed", func() bool { return w.target("b2", "followed") == int(before) })
	<-time.After(time.Minute)
	if n := read.Load(); n != before {
		w.t.Errorf("%d pages were read", n-before)
	}
	for _, p := range e.engine.Progress() {
		if !strings.Contains(p.Pace, why) || !strings.Contains(p.WaitsFor, why) {
			w.t.Errorf("progress %+v: want %q", p, why)
		}
	}
}

// TestPausedInTheCopy: no page is read until somebody resumes, and then each is.
func TestPausedInTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, e, read := paced(t, throttle.Config{})
		yes, no, why := true, false, "the nightly report"
		w.apply(upgradestate.SetPace{Paused: &yes, Reason: &why})
		w.standsStill(e, read, why)
		w.apply(upgradestate.SetPace{Paused: &no})
		w.begin()
		w.eventually("ready", w.allReady)
		for i := range 2000 {
			if got := w.target("a2", fmt.Sprintf("item-%d", i)); got != i {
				t.Fatalf("item %d is %d", i, got)
			}
		}
		for _, p := range e.engine.Progress() {
			if p.Pace != "" {
				t.Errorf("progress %+v", p)
			}
		}
		e.stop(t)
	})
}

// TestBlindInTheCopy: a source that cannot be measured is not copied on, and is when it can.
func TestBlindInTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, e, read := paced(t, throttle.Config{})
		e.stop(t)
		for n := range ring {
			w.free(n)
		}
		w.src.Cluster().SetHealth(record.Health{}, errors.New("not authorized"))
		e = w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Source, p.Pacer = pages{p.Source, read}, throttle.New(throttle.Config{Source: w.src, Target: w.dst})
		})
		w.eventually("the engine", func() bool { return len(e.engine.Progress()) == ring })
		w.standsStill(e, read, "the source cannot be measured: not authorized")
		w.src.Cluster().SetHealth(record.Health{}, nil)
		w.begin()
		w.eventually("ready", w.allReady)
		e.stop(t)
	})
}

// TestRateIsShared: the rate of the record is that of all controllers, by their shards.
func TestRateIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, e, _ := paced(t, throttle.Config{})
		rate := 40
		w.apply(upgradestate.SetPace{MaxRate: &rate})
		<-time.After(5 * time.Second)
		copied := func() (n int64) {
			for _, p := range e.engine.Progress() {
				n += p.Copied
			}
			return n
		}
		before := copied()
		<-time.After(10 * time.Second)
		if n := copied() - before; n < 350 || n > 450 {
			t.Errorf("%d records in 10 s, want 400", n)
		}
		said := func(p syncer.Progress) bool { return strings.Contains(p.Pace, "40 records a second") }
		if all := e.engine.Progress(); !slices.ContainsFunc(all, said) {
			t.Errorf("progress %+v", all)
		}
		e.stop(t)
	})
}

// TestTurnOfTheCopy: a copy waits while another deployment of the process has the only place, and says
// so. Once its shards are compared, the place is free for others at once.
func TestTurnOfTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, read := newWorld(t), new(atomic.Int64)
		w.put("a1", "item", 1)
		turns := throttle.NewTurns(1)
		other := throttle.New(throttle.Config{Turns: turns})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { // it copies for long
			defer close(ended)
			for other.Wait(ctx, 0) == nil {
				<-time.After(time.Second)
			}
		}()
		synctest.Wait()
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Source, p.Pacer = pages{p.Source, read}, throttle.New(throttle.Config{Turns: turns})
		})
		w.eventually("the engine", func() bool { return len(e.engine.Progress()) == ring })
		w.eventually("the reason", func() bool {
			return slices.ContainsFunc(e.engine.Progress(), func(p syncer.Progress) bool {
				return p.PaceCause == throttle.CauseTurn && strings.Contains(p.Pace, "copy.deployments") && strings.Contains(p.WaitsFor, "copy.deployments")
			})
		})
		if n := read.Load(); n != 0 {
			t.Errorf("%d pages were read", n)
		}
		cancel()
		<-ended
		other.Rest()
		w.begin()
		w.eventually("ready", w.allReady)
		before := time.Now()
		if err := other.Wait(t.Context(), 0); err != nil || time.Since(before) > 0 {
			t.Errorf("the next deployment waits %v: %v", time.Since(before), err)
		}
		e.stop(t)
	})
}
