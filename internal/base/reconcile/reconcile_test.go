package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"dbcontroller.dev/internal/base/reconcile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call is a step that was called.
type call struct {
	at    time.Duration // since the start
	state string
}

// answer is what a step returns.
type answer struct {
	again time.Duration
	err   error
}

// world runs a loop in simulated time.
type world struct {
	t     *testing.T
	start time.Time
	feed  chan string
	calls []call
	stop  context.CancelFunc
	done  chan error
}

// run starts a loop whose steps return the answers in turn, and then success.
func run(t *testing.T, loop reconcile.Loop[string], answers ...answer) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{t: t, start: time.Now(), feed: make(chan string), stop: cancel, done: make(chan error, 1)}
	loop.Step = func(_ context.Context, latest string) (time.Duration, error) {
		w.calls = append(w.calls, call{time.Since(w.start), latest})
		if len(answers) == 0 {
			return 0, nil
		}
		a := answers[0]
		answers = answers[1:]
		return a.again, a.err
	}
	go func() { w.done <- loop.Run(ctx, w.feed) }()
	return w
}

// wants lets an hour pass, ends the loop and compares what it called.
func (w *world) wants(want ...call) {
	w.t.Helper()
	time.Sleep(time.Hour)
	w.stop()
	if err := <-w.done; !errors.Is(err, context.Canceled) {
		w.t.Errorf("the loop ended with %v", err)
	}
	if !slices.Equal(w.calls, want) {
		w.t.Errorf("called %v, want %v", w.calls, want)
	}
}

// inBubble is a table's row, in a bubble of simulated time.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}

func TestLoop(t *testing.T) {
	t.Parallel()
	away := errors.New("the database is away")
	same := func(before, now string) bool { return before[0] == now[0] }
	inBubble(t, "nothing is done before a state is seen", func(t *testing.T) {
		run(t, reconcile.Loop[string]{Retry: time.Second}).wants()
	})
	inBubble(t, "each new state, and nothing between", func(t *testing.T) {
		w := run(t, reconcile.Loop[string]{Retry: time.Second})
		w.feed <- "a"
		time.Sleep(time.Minute)
		w.feed <- "b"
		w.wants(call{0, "a"}, call{time.Minute, "b"})
	})
	inBubble(t, "a failure is tried again, until it succeeds", func(t *testing.T) {
		w := run(t, reconcile.Loop[string]{Retry: 10 * time.Second}, answer{err: away}, answer{3 * time.Second, away})
		w.feed <- "a"
		w.wants(call{0, "a"}, call{10 * time.Second, "a"}, call{13 * time.Second, "a"})
	})
	inBubble(t, "a step asks to be called again", func(t *testing.T) {
		w := run(t, reconcile.Loop[string]{Retry: time.Second}, answer{again: time.Minute})
		w.feed <- "a"
		w.wants(call{0, "a"}, call{time.Minute, "a"})
	})
	inBubble(t, "a new state does not wait for the retry, which it replaces", func(t *testing.T) {
		w := run(t, reconcile.Loop[string]{Retry: time.Minute}, answer{err: away})
		w.feed <- "a"
		time.Sleep(time.Second)
		w.feed <- "b"
		w.wants(call{0, "a"}, call{time.Second, "b"})
	})
	inBubble(t, "a state that asks for nothing new waits for the retry, and is what that sees", func(t *testing.T) {
		w := run(t, reconcile.Loop[string]{Retry: time.Minute, Same: same}, answer{err: away})
		w.feed <- "a1"
		time.Sleep(time.Second)
		w.feed <- "a2"
		w.wants(call{0, "a1"}, call{time.Minute, "a2"})
	})
}

// TestFailuresAreTold: the caller hears of each, and whether the one before was the same.
func TestFailuresAreTold(t *testing.T) {
	t.Parallel()
	inBubble(t, "each", func(t *testing.T) {
		type failure struct {
			state, text string
			repeated    bool
		}
		var heard []failure
		away, full := errors.New("away"), errors.New("full")
		w := run(t, reconcile.Loop[string]{Retry: time.Second, Failed: func(latest string, err error, repeated bool) {
			heard = append(heard, failure{latest, err.Error(), repeated})
		}}, answer{err: away}, answer{err: away}, answer{err: full}, answer{again: time.Second}, answer{err: full})
		w.feed <- "a"
		w.wants(call{0, "a"}, call{time.Second, "a"}, call{2 * time.Second, "a"}, call{3 * time.Second, "a"}, call{4 * time.Second, "a"}, call{5 * time.Second, "a"})
		if want := []failure{{"a", "away", false}, {"a", "away", true}, {"a", "full", false}, {"a", "full", false}}; !slices.Equal(heard, want) {
			t.Errorf("heard %v, want %v", heard, want)
		}
	})
}

// TestEndWithinAStep: what a step returns because the context ended is no failure.
func TestEndWithinAStep(t *testing.T) {
	t.Parallel()
	inBubble(t, "of the context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		feed := make(chan string, 1)
		feed <- "a"
		time.AfterFunc(time.Second, cancel)
		err := reconcile.Loop[string]{
			Step: func(ctx context.Context, _ string) (time.Duration, error) {
				<-ctx.Done()
				return 0, errors.New("the database is away")
			},
			Failed: func(_ string, err error, _ bool) { t.Errorf("heard %v", err) },
		}.Run(ctx, feed)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
	inBubble(t, "of the feed", func(t *testing.T) {
		feed := make(chan string)
		close(feed)
		if err := (reconcile.Loop[string]{}).Run(t.Context(), feed); err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}
