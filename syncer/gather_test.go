package syncer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// countedReads counts the reads of a target's stream that bring changes.
type countedReads struct {
	record.Namespace
	reads *atomic.Int64
}

func (c countedReads) Follow(ctx context.Context, from record.Position, toks record.Tokens) (record.Stream, error) {
	s, err := c.Namespace.Follow(ctx, from, toks)
	return countedStream{s, c.reads}, err
}

type countedStream struct {
	record.Stream
	reads *atomic.Int64
}

func (s countedStream) Next(ctx context.Context) (record.ChangeBatch, error) {
	b, err := s.Stream.Next(ctx)
	if err == nil && len(b.Changes) > 0 {
		s.reads.Add(1)
	}
	return b, err
}

// gathering runs an engine that is ready, and counts the reads of its target's stream.
func gathering(t *testing.T, test func(w *world, reads *atomic.Int64)) {
	synctest.Test(t, func(t *testing.T) {
		w, reads := newWorld(t), &atomic.Int64{}
		w.fill()
		w.begin()
		r := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Target = countedReads{p.Target, reads} })
		w.eventually("ready", w.allReady)
		test(w, reads)
		r.stop(t)
	})
}

// The engine's own changes of the target are not read one by one while clients write.
func TestTargetsChangesGather(t *testing.T) {
	gathering(t, func(w *world, reads *atomic.Int64) {
		<-time.After(time.Second)
		before := reads.Load()
		const writes = 200 // one each 5 ms, a second in all
		for i := range writes {
			key := keyIn(i%ring, 0)
			w.put("a1", key, 100+i)
			w.eventually("it is applied", func() bool { return w.target("a2", key) == 100+i })
			<-time.After(5 * time.Millisecond)
		}
		if n := reads.Load() - before; n < 1 || n > writes/4 {
			w.t.Errorf("%d reads for %d changes", n, writes)
		}
	})
}

// A switch that begins while changes of the target gather does not wait for the rest of that time.
func TestSwitchEndsTheGathering(t *testing.T) {
	gathering(t, func(w *world, reads *atomic.Int64) {
		<-time.After(time.Second)
		before := reads.Load()
		w.put("a1", keyIn(0, 0), 100)
		for reads.Load() == before {
			<-time.After(time.Millisecond)
		}
		w.hand().meddle() // read only after the time to gather, or with the switch
		now, err := w.dst.Position(w.t.Context())
		w.check(err)
		began := time.Now() // simulated
		w.apply(upgradestate.StartSwitch{ID: "u", TargetSince: fmt.Sprintf(`{"at":%q}`, now.At)})
		w.apply(upgradestate.Held{ID: "u"})
		for _, kind := range []string{"a1", "b1", "c1"} {
			w.apply(w.fence(kind))
		}
		for !w.allReady() {
			<-time.After(time.Millisecond)
		}
		if took := time.Since(began); took > 50*time.Millisecond {
			w.t.Errorf("the drain takes %v of simulated time", took)
		}
		if n := w.target("a2", keyIn(0, 0)); n != 100 {
			w.t.Errorf("the target holds %d, want 100", n)
		}
	})
}
