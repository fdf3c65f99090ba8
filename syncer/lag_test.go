package syncer_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
)

// TestSlowToApply: a shard whose changes take longer to be applied than they may is not
// ready, and reports by how much; with a bound that allows for it, it is.
func TestSlowToApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, bound := range []time.Duration{200 * time.Millisecond, 2 * time.Second} {
			w := newWorld(t)
			w.begin()
			target := &dawdling{Namespace: w.dst}
			e := w.engineWith(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Target = target },
				func(c *syncer.Config) { c.LagBound = bound })
			w.eventually("all are ready", w.allReady)
			target.pause.Store(int64(900 * time.Millisecond))
			stop, writes := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(writes)
				for n := 1; ; n++ {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
						w.put("a1", keyIn(0, 0), n)
					}
				}
			}()
			time.Sleep(10 * time.Second)
			p, _ := e.progress(0)
			if ready := bound > time.Second; ready != w.allReady() {
				t.Errorf("changes take 0.9 s and may take %v: ready %v, waits for %q", bound, w.ready(), p.WaitsFor)
			} else if !ready && !strings.Contains(p.WaitsFor, "more than switch.maxLag, "+bound.String()) {
				t.Errorf("it waits for %q", p.WaitsFor)
			}
			close(stop)
			<-writes
			target.pause.Store(0)
			w.eventually("all are ready again", w.allReady)
			e.stop(t)
		}
	})
}

// dawdling takes its time to apply.
type dawdling struct {
	record.Namespace
	pause atomic.Int64
}

func (d *dawdling) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	time.Sleep(time.Duration(d.pause.Load()))
	return d.Namespace.Apply(ctx, b)
}

// TestClockSteps: the source's clock jumps ahead of ours, and behind it. Nothing rests on it:
// changes are applied, shards stay ready, and no lag is less than nothing.
func TestClockSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.begin()
		source := &stepped{Namespace: w.src}
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Source = source })
		w.eventually("all are ready", w.allReady)
		for n, step := range []time.Duration{time.Hour, -time.Hour, 30 * 24 * time.Hour, 0} {
			source.step.Store(step.Milliseconds())
			for shard := range ring {
				w.put("a1", keyIn(shard, 0), n+1)
			}
			w.eventually("the changes", func() bool {
				for shard := range ring {
					if w.target("a2", keyIn(shard, 0)) != n+1 {
						return false
					}
				}
				return true
			})
			time.Sleep(5 * time.Second) // in which reports would be withdrawn
			for shard := range ring {
				if p, ok := e.progress(shard); !ok || p.WaitsFor != "" || p.LagMillis == nil || *p.LagMillis < 0 {
					t.Errorf("the clock is %v off: shard %d waits for %q, progress %+v", step, shard, p.WaitsFor, p)
				}
			}
			if !w.allReady() {
				t.Errorf("the clock is %v off: ready are %v", step, w.ready())
			}
		}
		e.stop(t)
	})
}

// stepped is a source whose clock is off.
type stepped struct {
	record.Namespace
	step atomic.Int64 // milliseconds
}

func (s *stepped) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	stream, err := s.Namespace.Watch(ctx, from, kinds)
	if err != nil {
		return nil, err
	}
	return steppedStream{stream, &s.step}, nil
}

type steppedStream struct {
	record.Stream
	step *atomic.Int64
}

func (s steppedStream) Next(ctx context.Context) (record.ChangeBatch, error) {
	b, err := s.Stream.Next(ctx)
	if b.Wall > 0 {
		b.Wall += s.step.Load()
	}
	return b, err
}
