package vrunner_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/vrunner"
)

// observing returns stacks with observers of v1 and v2, of which each version serves its own and v2
// also that of v1.
func observing(run func(ctx context.Context, of, version string, v *vrunner.View) error, leader bool) func(string, map[string]*vrunner.View) vrunner.Stack {
	return func(version string, views map[string]*vrunner.View) vrunner.Stack {
		stack := (&service{}).stack(version, views)
		for _, of := range []string{"v1", "v2"} {
			if of == "v2" && version == "v1" {
				continue
			}
			stack.Observers = append(stack.Observers, vrunner.Observation{
				Observer: vrunner.Observer{Name: "o", Leader: leader, Run: func(ctx context.Context, _ vrunner.Store) error { return run(ctx, of, version, views[version]) }},
				Version:  of, Data: vrunner.StoreOf(views[version]),
			})
		}
		return stack
	}
}

// wantSorted is want for lines in any order.
func wantSorted(t *testing.T, j *journal, lines ...string) {
	t.Helper()
	synctest.Wait()
	j.mu.Lock()
	slices.Sort(j.lines)
	j.mu.Unlock()
	j.want(t, slices.Sorted(slices.Values(lines))...)
}

// TestObservers run for each version that the active one serves, end at a flip, and go on after it.
func TestObservers(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		j := &journal{}
		start(ctx, consumer{w.store, &announced{}}, w.clients(), observing(func(ctx context.Context, of, version string, v *vrunner.View) error {
			_, err := v.List(ctx, kindOf[version], "", "", 0)
			j.add("%s over %s: %v", of, version, err)
			<-ctx.Done()
			j.add("%s over %s ended: %t", of, version, errors.Is(context.Cause(ctx), vrunner.ErrFlipped))
			return context.Cause(ctx)
		}, false), vrunner.Config{}, nil)
		wantSorted(t, j, "v1 over v1: <nil>")
		w.flip(ctx, "u1", "v2")
		wantSorted(t, j, "v1 over v1 ended: true", "v1 over v2: <nil>", "v2 over v2: <nil>")
		w.flip(ctx, "u2", "v1")
		wantSorted(t, j, "v1 over v1: <nil>", "v1 over v2 ended: true", "v2 over v2 ended: true")
	})
}

// TestObserversFail: after an error or a panic an observer runs again, later each time, and its writes
// are refused.
func TestObserversFail(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		var began []time.Time
		var log strings.Builder
		start(ctx, consumer{w.store, &announced{}}, w.clients(), observing(func(ctx context.Context, of, version string, v *vrunner.View) error {
			switch began = append(began, time.Now()); len(began) {
			case 1:
				return errors.New("first")
			case 2:
				panic("second")
			case 3:
				return beat(ctx, version, v, "written")
			}
			<-ctx.Done()
			return nil
		}, false), vrunner.Config{}, slog.New(slog.NewTextHandler(&log, nil)))
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(began) != 4 || began[3].Sub(began[0]) > 10*time.Second {
			t.Errorf("it began at %v", began)
		}
		for _, part := range []string{"observer=v1/o", "error=first", "panic: second", "outside of a request"} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("the log has no %q:\n%s", part, log.String())
			}
		}
		if got := w.stored(ctx, "v1", "old"); got != "" {
			t.Errorf("there is %s", got)
		}
	})
}

// TestObserverCallsAnother: the refusal of another service, whatever its reason, does not end an observer.
func TestObserverCallsAnother(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		j := &journal{}
		answers := []error{
			refusal.New(refusal.NotReady, errors.New("the other one")), refusal.New(refusal.Stopping, errors.New("the other one")),
			refusal.New(refusal.VersionRetired, errors.New("the other one")), nil,
		}
		start(ctx, consumer{w.store, &announced{}}, w.clients(), observing(func(ctx context.Context, _, _ string, _ *vrunner.View) error {
			answer := answers[0]
			answers = answers[1:]
			j.add("%v", answer)
			return answer
		}, false), vrunner.Config{}, nil)
		time.Sleep(time.Minute)
		j.want(t, "unavailable: the other one", "unavailable: the other one", "not_found: the other one", "<nil>")
	})
}

// TestObserverWaitsForData: an observer whose version has no data yet waits for another record, and fails
// no more often than the record changes.
func TestObserverWaitsForData(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		j := &journal{}
		start(ctx, consumer{w.store, &announced{}}, w.clients(), observing(func(ctx context.Context, of, version string, v *vrunner.View) error {
			if version == "v1" {
				j.add("%s", of)
				return fmt.Errorf("kind: %w", refusal.Because(refusal.VersionNotReady, "v2 has no data yet", record.ErrNotFound))
			}
			j.add("%s over %s", of, version)
			return nil
		}, false), vrunner.Config{}, nil)
		time.Sleep(time.Hour)
		j.want(t, "v1")
		w.flip(ctx, "u1", "v2")
		synctest.Wait()
		j.mu.Lock()
		defer j.mu.Unlock()
		if got := strings.Join(j.lines, ","); !strings.Contains(got, "v1 over v2") || !strings.Contains(got, "v2 over v2") {
			t.Errorf("after the flip: %s", got)
		}
	})
}

// TestStuckObserver: an observer that does not end keeps neither a switch nor a server waiting.
func TestStuckObserver(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		stuck := make(chan struct{})
		defer close(stuck)
		running, stop := context.WithCancel(ctx)
		r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), observing(func(context.Context, string, string, *vrunner.View) error {
			<-stuck
			return nil
		}, false), vrunner.Config{}, nil)
		ended := make(chan error, 1)
		go func() { ended <- r.Run(running) }()
		synctest.Wait()
		w.flip(ctx, "u1", "v2")
		synctest.Wait()
		if !r.GateOpen() {
			t.Error("writes are held after the flip")
		}
		began := time.Now()
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) || time.Since(began) > time.Minute {
			t.Errorf("it ends after %s: %v", time.Since(began), err)
		}
	})
}

// TestObserverOfALeader: the election outlives flips.
func TestObserverOfALeader(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		j := &journal{}
		lead := func(ctx context.Context, name string, work func(context.Context) error) error {
			j.add("elected for %s", name)
			return work(ctx)
		}
		start(ctx, consumer{w.store, &announced{}}, w.clients(), observing(func(ctx context.Context, of, version string, _ *vrunner.View) error {
			j.add("%s over %s", of, version)
			<-ctx.Done()
			return nil
		}, true), vrunner.Config{Lead: lead}, nil)
		wantSorted(t, j, "elected for observer/v1/o", "elected for observer/v2/o", "v1 over v1")
		w.flip(ctx, "u1", "v2")
		wantSorted(t, j, "v1 over v2", "v2 over v2")
	})
}

// TestObserversAreChecked: what could never run is refused.
func TestObserversAreChecked(t *testing.T) {
	t.Parallel()
	run := func(context.Context, vrunner.Store) error { return nil }
	for want, observers := range map[string][]vrunner.Observer{
		"needs a name and Run":                {{Run: run}},
		"an observer of v1 needs a name":      {{Name: "a"}},
		"two observers of v1 are called a":    {{Name: "a", Run: run}, {Name: "a", Run: run}},
		"observer a of v1 runs on one server": {{Name: "a", Run: run, Leader: true}},
	} {
		r := vrunner.New(nil, map[string]vrunner.Database{"v1": {}}, func(version string, _ map[string]*vrunner.View) (s vrunner.Stack) {
			for _, o := range observers {
				s.Observers = append(s.Observers, vrunner.Observation{Observer: o, Version: version})
			}
			return s
		}, vrunner.Config{}, nil)
		if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
