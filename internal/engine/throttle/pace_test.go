package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gauge is a database whose health a test decides on.
type gauge struct {
	mu    sync.Mutex
	h     record.Health
	err   error
	looks atomic.Int64
}

func (g *gauge) set(h record.Health, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.h, g.err = h, err
}

func (g *gauge) Health(context.Context) (record.Health, error) {
	g.looks.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.h, g.err
}

// worker reads pages of 100 records, 10 ms each, as its Pacer lets it.
type worker struct{ done atomic.Int64 }

func (w *worker) run(ctx context.Context, t *testing.T, p *throttle.Pacer) {
	records := 0
	for {
		if err := p.Wait(ctx, records); err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
		records = 100
		w.done.Add(100)
	}
}

// in runs a worker in simulated time.
func in(t *testing.T, cfg throttle.Config, f func(p *throttle.Pacer, rate func(time.Duration) int64)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p, w := throttle.New(cfg), &worker{}
		var wg sync.WaitGroup
		wg.Go(func() { w.run(ctx, t, p) })
		f(p, func(d time.Duration) int64 {
			before := w.done.Load()
			<-time.After(d)
			return int64(float64(w.done.Load()-before) / d.Seconds())
		})
		cancel()
		wg.Wait()
	})
}

func about(t *testing.T, what string, got, want int64) {
	t.Helper()
	if got < want*8/10 || got > want*12/10 {
		t.Errorf("%s: %d records a second, want about %d", what, got, want)
	}
}

func TestNothingThrottles(t *testing.T) {
	g := &gauge{}
	in(t, throttle.Config{Source: g, Target: g}, func(p *throttle.Pacer, rate func(time.Duration) int64) {
		about(t, "unlimited", rate(20*time.Second), 10_000)
		if why, _ := p.Reason(); why != "" {
			t.Errorf("held back: %s", why)
		}
		if n := g.looks.Load(); n < 30 || n > 44 {
			t.Errorf("two databases were measured %d times in 20 s", n)
		}
	})
}

// TestRates: the pace of the record bounds all controllers together, the configuration
// each, and changes count at once.
func TestRates(t *testing.T) {
	in(t, throttle.Config{MaxRate: 2000}, func(p *throttle.Pacer, rate func(time.Duration) int64) {
		about(t, "as configured", rate(10*time.Second), 2000)
		p.Set(upgradestate.Pace{MaxRate: 1000}, 1)
		about(t, "of the record", rate(10*time.Second), 1000)
		p.Set(upgradestate.Pace{MaxRate: 1000}, 0.5)
		about(t, "of half the ring", rate(10*time.Second), 500)
		if why, standstill := p.Reason(); standstill || p.Cause() != throttle.CauseRate || !strings.Contains(why, "500 records a second") {
			t.Errorf("%q, %t", why, standstill)
		}
		p.Set(upgradestate.Pace{MaxRate: 1}, 1)
		<-time.After(time.Second)
		p.Set(upgradestate.Pace{}, 1)
		about(t, "after a rate that would take minutes", rate(10*time.Second), 2000)
	})
}

func TestPause(t *testing.T) {
	g := &gauge{}
	in(t, throttle.Config{Source: g}, func(p *throttle.Pacer, rate func(time.Duration) int64) {
		rate(time.Second)
		p.Set(upgradestate.Pace{Paused: true, Reason: "month's end"}, 1)
		<-time.After(20 * time.Millisecond) // the page under way
		if n := rate(time.Hour); n != 0 {
			t.Errorf("%d records a second while paused", n)
		}
		if why, standstill := p.Reason(); !standstill || p.Cause() != throttle.CausePaused || !strings.Contains(why, "month's end") {
			t.Errorf("%q, %t", why, standstill)
		}
		looks := g.looks.Load()
		rate(time.Minute)
		if g.looks.Load() != looks {
			t.Error("it was measured while nothing goes on")
		}
		p.Set(upgradestate.Pace{}, 1)
		about(t, "resumed", rate(time.Second), 10_000)
	})
}

// TestWindow: simulated time begins at midnight UTC.
func TestWindow(t *testing.T) {
	in(t, throttle.Config{Window: "01:00-02:00"}, func(p *throttle.Pacer, rate func(time.Duration) int64) {
		if n := rate(59*time.Minute + 58*time.Second); n != 0 {
			t.Errorf("%d records a second before the window", n)
		}
		if why, standstill := p.Reason(); !standstill || p.Cause() != throttle.CauseWindow || !strings.Contains(why, "01:00-02:00") {
			t.Errorf("%q, %t", why, standstill)
		}
		<-time.After(3 * time.Second) // checked once a second
		if n := rate(10 * time.Minute); n == 0 {
			t.Error("nothing goes on in the window")
		}
		<-time.After(50 * time.Minute)
		if n := rate(10 * time.Minute); n != 0 {
			t.Errorf("%d records a second after the window", n)
		}
		p.Set(upgradestate.Pace{Window: "22:00-05:00"}, 1)
		if n := rate(time.Minute); n == 0 {
			t.Error("nothing goes on in the window of the record, which counts before the configured one")
		}
	})
	east := time.FixedZone("UTC+5", 5*3600)
	in(t, throttle.Config{Window: "00:00-00:30", Now: func() time.Time { return time.Now().In(east) }}, func(_ *throttle.Pacer, rate func(time.Duration) int64) {
		if n := rate(time.Minute); n == 0 {
			t.Error("a clock of another zone shifts the window")
		}
	})
}

// TestPressure: halved under pressure, down to a rate that remains, and back by steps.
func TestPressure(t *testing.T) {
	for name, h := range map[string]record.Health{
		"lag": {Lag: 3 * time.Second}, "dirty": {CacheDirty: 0.17}, "used": {CacheUsed: 0.97}, "cpu": {CPU: 0.8}, "queue": {Queue: 2.5},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gauge{}
			in(t, throttle.Config{Source: g, MaxSourceLoad: 70}, func(p *throttle.Pacer, rate func(time.Duration) int64) {
				rate(5 * time.Second)
				g.set(h, nil)
				<-time.After(1500 * time.Millisecond)
				if n := rate(1500 * time.Millisecond); n > 5000 {
					t.Errorf("%d records a second a moment after the pressure began", n)
				}
				<-time.After(20 * time.Second)
				if n := rate(20 * time.Second); n < 25 || n > 100 {
					t.Errorf("%d records a second under lasting pressure, want a few", n)
				}
				if why, standstill := p.Reason(); standstill || p.Cause() != throttle.CauseSource || !strings.Contains(why, "the source is under pressure") {
					t.Errorf("%q, %t", why, standstill)
				}
				g.set(record.Health{}, nil)
				first := rate(5 * time.Second)
				if first > 5000 {
					t.Errorf("%d records a second at once", first)
				}
				<-time.After(60 * time.Second)
				about(t, "no strain again", rate(5*time.Second), 10_000)
				if why, _ := p.Reason(); why != "" || p.Cause() != throttle.CauseNone {
					t.Errorf("held back: %s", why)
				}
			})
		})
	}
}

// TestOverload stops everything, and it goes on when it is over.
func TestOverload(t *testing.T) {
	for name, h := range map[string]record.Health{"lag": {Lag: 11 * time.Second}, "dirty": {CacheDirty: 0.21}} {
		t.Run(name, func(t *testing.T) {
			source, target := &gauge{}, &gauge{}
			in(t, throttle.Config{Source: source, Target: target}, func(p *throttle.Pacer, rate func(time.Duration) int64) {
				rate(5 * time.Second)
				target.set(h, nil)
				<-time.After(1500 * time.Millisecond)
				if n := rate(10 * time.Minute); n != 0 {
					t.Errorf("%d records a second", n)
				}
				if why, standstill := p.Reason(); !standstill || p.Cause() != throttle.CauseTarget || !strings.Contains(why, "the target is under pressure") {
					t.Errorf("%q, %t", why, standstill)
				}
				target.set(record.Health{}, nil)
				<-time.After(2 * time.Second)
				if n := rate(10 * time.Second); n == 0 {
					t.Error("it does not go on")
				}
			})
		})
	}
}

// TestBlind: what cannot be measured stops bulk work, from the beginning too.
func TestBlind(t *testing.T) {
	g := &gauge{}
	g.set(record.Health{}, errors.New("not authorized to run serverStatus: grant the role clusterMonitor on admin"))
	in(t, throttle.Config{Source: g}, func(p *throttle.Pacer, rate func(time.Duration) int64) {
		if n := rate(time.Minute); n != 0 {
			t.Errorf("%d records a second, blindly", n)
		}
		why, standstill := p.Reason()
		for _, part := range []string{"the source cannot be measured", "clusterMonitor", "copy.throttle: off"} {
			if !standstill || !strings.Contains(why, part) {
				t.Errorf("%q, %t: want %q", why, standstill, part)
			}
		}
		g.set(record.Health{}, nil)
		<-time.After(90 * time.Second)
		about(t, "measured again", rate(5*time.Second), 10_000)
	})
}

// TestErrorsArePressure: so that a database that fails is not hit at full speed.
func TestErrorsArePressure(t *testing.T) {
	g := &gauge{}
	in(t, throttle.Config{Source: g}, func(p *throttle.Pacer, rate func(time.Duration) int64) {
		rate(5 * time.Second)
		for range 8 {
			p.Failed()
			<-time.After(time.Second)
		}
		if why, _ := p.Reason(); p.Cause() != throttle.CauseErrors || !strings.Contains(why, "errors") {
			t.Errorf("held back: %q", why)
		}
		if n := rate(time.Second); n > 2000 {
			t.Errorf("%d records a second", n)
		}
	})
}

// TestLoadBoundIsLive: the record's bound of the load counts before the configured one.
func TestLoadBoundIsLive(t *testing.T) {
	g := &gauge{}
	g.set(record.Health{CPU: 0.5}, nil)
	in(t, throttle.Config{Source: g}, func(p *throttle.Pacer, rate func(time.Duration) int64) {
		about(t, "no bound", rate(5*time.Second), 10_000)
		p.Set(upgradestate.Pace{MaxSourceLoad: 40}, 1)
		<-time.After(10 * time.Second)
		if n := rate(5 * time.Second); n > 1000 {
			t.Errorf("%d records a second above the bound", n)
		}
	})
}

// TestManyWorkers share one rate.
func TestManyWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p, w := throttle.New(throttle.Config{MaxRate: 1000}), &worker{}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { w.run(ctx, t, p) })
		}
		<-time.After(60 * time.Second)
		about(t, "four workers", w.done.Load()/60, 1000)
		cancel()
		wg.Wait()
	})
}

// TestSlowMeasurement: others go by the one before while it is made, and not for ever.
func TestSlowMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		hang := make(chan struct{})
		g := hanging{&gauge{}, hang}
		p, w := throttle.New(throttle.Config{Source: g}), &worker{}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { w.run(ctx, t, p) })
		}
		<-time.After(3 * time.Second)
		close(hang)
		<-time.After(time.Minute)
		if why, standstill := p.Reason(); !standstill {
			t.Errorf("a database that does not answer: %q", why)
		}
		cancel()
		wg.Wait()
	})
}

// hanging answers no more once the channel is closed.
type hanging struct {
	*gauge
	hang chan struct{}
}

func (h hanging) Health(ctx context.Context) (record.Health, error) {
	select {
	case <-h.hang:
		<-ctx.Done()
		return record.Health{}, ctx.Err()
	default:
		return h.gauge.Health(ctx)
	}
}

func Example() {
	p := throttle.New(throttle.Config{})
	p.Set(upgradestate.Pace{Paused: true, Reason: "month's end"}, 1)
	fmt.Println(p.Reason())
	p.Set(upgradestate.Pace{MaxRate: 1000}, 0.25) // this controller has a quarter of the ring
	fmt.Println(p.Reason())
	// Output:
	// paused: month's end true
	// limited to 250 records a second false
}
