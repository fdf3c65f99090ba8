package verify_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"dbcontroller.dev/internal/engine/verify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSettles: what differs because a change is on its way is no mismatch.
func TestSettles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put(t, "heads", "c", nil)
		w.put(t, "wholes", "d", whole("d", 9, 1))
		done := make(chan struct{})
		var rep verify.Report
		var err error
		start := time.Now()
		go func() {
			defer close(done)
			rep, err = w.up.Run(t.Context(), w.oldView(), w.newView(), verify.Recheck{}, nil)
		}()
		<-time.After(time.Second)
		synctest.Wait()
		select {
		case <-done:
			t.Fatalf("ended after %s with %+v, %v", time.Since(start), rep, err)
		default:
		}
		w.put(t, "heads", "c", doc("c", 2))
		w.put(t, "heads", "d", doc("d", 9))
		for _, part := range []string{"d/1", "d/2"} {
			w.put(t, "parts", part, nil)
		}
		w.put(t, "parts", "d/0", doc("d/0", 9))
		<-done
		if err != nil || rep.Mismatched != 0 || len(rep.Examples) > 0 || rep.Compared == 0 {
			t.Errorf("%+v, %v", rep, err)
		}
	})
}

// TestLasting: what stays different is reported after the tries, and not before.
func TestLasting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put(t, "heads", "c", nil)
		start := time.Now()
		var progress []verify.Report
		rep, err := w.up.Run(t.Context(), w.oldView(), w.newView(), verify.Recheck{Tries: 4, Every: time.Second},
			func(r verify.Report) { progress = append(progress, r) })
		if err != nil || rep.Mismatched != 1 || len(rep.Examples) != 1 || rep.Examples[0] != "c" {
			t.Errorf("%+v, %v", rep, err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %s, want 4 tries a second apart", took)
		}
		if n := len(progress); n != 4 || progress[2].Compared != rep.Compared || progress[2].Scanned == 0 || progress[3].Doing != "compares the differing groups again" {
			t.Errorf("progress %+v, want one of each of the 3 kinds, up to %+v, and that it compares again", progress, rep)
		}
	})
}

// TestRunEndsWithItsContext while it waits for differences to go away.
func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put(t, "heads", "c", nil)
		ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := w.up.Run(ctx, w.oldView(), w.newView(), verify.Recheck{Every: time.Second}, nil)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 600*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}
