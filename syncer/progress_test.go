package syncer_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

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

// timed is a database whose commands take their time.
type timed struct {
	record.Namespace
	scan, load, apply time.Duration
}

func (s timed) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	<-time.After(s.scan)
	return s.Namespace.Scan(ctx, req)
}

func (s timed) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	<-time.After(s.load)
	return s.Namespace.Load(ctx, b)
}

func (s timed) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	<-time.After(s.apply)
	return s.Namespace.Apply(ctx, b)
}

// TestStages: where the time of a copy goes. The clock is simulated, so that what takes no time
// of a database takes none.
func TestStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 4 { // four pages at most, one for each shard
			w.put("a1", keyIn(i, 0), i)
		}
		there := mutation("a2", keyIn(0, 0), 0) // is applied in a transaction
		w.write(w.dst, "v2", there)
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Source = timed{Namespace: p.Source, scan: 2 * time.Second}
			p.Target = timed{Namespace: p.Target, load: 3 * time.Second, apply: 5 * time.Second}
		})
		w.eventually("the copy", func() bool { return e.synced() })
		got := e.engine.Stages()
		// Pages of empty ranges are read as well, and written without a command.
		if got[syncer.Read] == 0 || got[syncer.Read]%(2*time.Second) != 0 || got[syncer.Write] == 0 || got[syncer.Write]%(3*time.Second) != 0 ||
			got[syncer.Again] != 5*time.Second || got[syncer.Transform] != 0 {
			t.Errorf("stages %v", got)
		}
		e.stop(t)
	})
}

// TestTrace: the spans of a copy add up to its stages, those of what follows are there, and none
// says more than numbers.
func TestTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		spans := tracetest.NewInMemoryExporter()
		for i := range 4 {
			w.put("a1", keyIn(i, 0), i)
		}
		w.write(w.dst, "v2", mutation("a2", keyIn(0, 0), 0)) // is applied in a transaction
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Source = timed{Namespace: p.Source, scan: 2 * time.Second}
			p.Target = timed{Namespace: p.Target, load: 3 * time.Second, apply: 5 * time.Second}
			p.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("test")
		})
		w.begin()
		w.eventually("ready", w.allReady)
		w.put("a1", keyIn(1, 0), 10)
		w.eventually("the change", func() bool { return w.target("a2", keyIn(1, 0)) == 10 })
		<-time.After(20 * time.Second) // it is compared as well
		stages := e.engine.Stages()
		e.stop(t)

		pages := map[string]bool{}
		records, names := int64(0), map[string]int{}
		for _, s := range spans.GetSpans() {
			names[s.Name]++
			if s.Name == "copy page" {
				pages[s.SpanContext.SpanID().String()] = true
			}
			for _, a := range s.Attributes {
				if s.Name == "copy page" && a.Key == "records" {
					records += a.Value.AsInt64()
				}
				switch a.Key {
				case "shard", "records", "changes", "groups":
				default:
					t.Errorf("%s says %s", s.Name, a.Key)
				}
			}
		}
		got := map[syncer.Stage]time.Duration{}
		for _, s := range spans.GetSpans() {
			for stage := range stages {
				if s.Name == stage.String() && pages[s.Parent.SpanID().String()] {
					got[stage] += s.EndTime.Sub(s.StartTime)
				}
			}
		}
		for stage := range stages {
			got[stage] += 0 // stages that took no time may have no span
		}
		if diff := cmp.Diff(stages, got); diff != "" {
			t.Errorf("spans of stages (-want +got):\n%s", diff)
		}
		if records != 4 || names["compare page"] == 0 || names["apply changes"] == 0 || names["compare changes"] == 0 {
			t.Errorf("%d records were copied, spans %v", records, names)
		}
	})
}

// Shards that come one after the other are all of them again and again, as far as they are there.
// What happens to them is said once, as that they came is.
func TestShardsThatComeSlowlyAreSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		core, lines := observer.New(zapcore.InfoLevel)
		o := w.owner(0)
		e := w.engine(o, func(p *syncer.Parts) { p.Log = zap.New(core) })
		copied := func(shards int) {
			w.eventually("they are copied", func() bool {
				there := 0
				for _, p := range e.engine.Progress() {
					if p.State != "copying" {
						there++
					}
				}
				return there == shards
			})
		}
		copied(1)
		for n := 1; n < ring; n++ {
			o.Take(n)
		}
		copied(ring)
		w.eventually("all are compared", e.synced)
		for _, what := range []string{"shards are adopted", "shards are copied", "shards are compared"} {
			w.eventually(what, func() bool { return lines.FilterMessage(what).Len() > 0 })
			if said := lines.FilterMessage(what).All(); len(said) != 1 {
				t.Errorf("%d lines say that %s: %v", len(said), what, said)
			}
		}
		e.stop(t)
	})
}
