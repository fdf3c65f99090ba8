package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

// newWorking is a service whose calls can be ended.
func newWorking() *Service {
	return &Service{cfg: Config{Log: zap.NewNop()}, stopping: make(chan struct{})}
}

// TestWorkIsReportedWhileNothingMoves: a step that takes a minute sends signs of life, each in
// the time that the one before it has promised.
func TestWorkIsReportedWhileNothingMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []*pb.WorkProgress
		last := time.Now()
		err := newWorking().reported(t.Context(), func(w *pb.WorkProgress) error {
			if len(got) > 0 {
				if silent, most := time.Since(last), time.Duration(got[len(got)-1].NextWithinMillis)*time.Millisecond; silent > most {
					t.Errorf("silent for %s, promised was %s", silent, most)
				}
			}
			got, last = append(got, w), time.Now()
			return nil
		}, func(_ context.Context, say func(Work)) error {
			say(Work{Doing: "compares", Done: 10, Total: 1000})
			time.Sleep(time.Minute)
			return nil
		})
		if err != nil || len(got) < 25 {
			t.Errorf("%v, %d messages", err, len(got))
		}
		if w := got[len(got)-1]; w.Doing != "compares" || w.Done != 10 || w.Total != 1000 {
			t.Errorf("%v", w)
		}
	})
}

// TestNothingIsLeftOut: what takes no time is told of as well, in its order.
func TestNothingIsLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []string
		err := newWorking().reported(t.Context(), func(w *pb.WorkProgress) error {
			got = append(got, w.Doing)
			return nil
		}, func(_ context.Context, say func(Work)) error {
			for _, doing := range []string{"a", "b", "b", "c"} {
				say(Work{Doing: doing})
			}
			time.Sleep(time.Second)
			say(Work{Doing: "d"})
			say(Work{Doing: "e"})
			return nil
		})
		if text := strings.Trim(strings.Join(got, " "), " "); err != nil || text != "a b c d e" {
			t.Errorf("%v, %q", err, text)
		}
	})
}

// TestTimeLeft is what the rest takes at the same speed, and is not known at the beginning.
func TestTimeLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []*pb.WorkProgress
		err := newWorking().reported(t.Context(), func(w *pb.WorkProgress) error {
			got = append(got, w)
			return nil
		}, func(_ context.Context, say func(Work)) error {
			for done := range int64(11) {
				say(Work{Doing: "compares", Done: done * 10, Total: 400})
				time.Sleep(time.Second)
			}
			return nil
		})
		if err != nil || got[0].EtaSeconds != nil {
			t.Errorf("%v, first %v", err, got[0])
		}
		// 100 of 400 took 10 seconds.
		if w := got[len(got)-1]; w.EtaSeconds == nil || *w.EtaSeconds < 29 || *w.EtaSeconds > 34 {
			t.Errorf("last %v", w)
		}
	})
}

// TestWorkEndsWithItsCaller: and with the controller, whose error says to ask another one.
func TestWorkEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	until := func(ctx context.Context, _ func(Work)) error {
		<-ctx.Done()
		return ctx.Err()
	}
	gone := errors.New("gone")
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		err := newWorking().reported(t.Context(), func(*pb.WorkProgress) error {
			if sent++; sent > 3 {
				return gone
			}
			return nil
		}, until)
		if !errors.Is(err, context.Canceled) || sent != 4 {
			t.Errorf("%v after %d messages", err, sent)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		v := newWorking()
		time.AfterFunc(time.Second, func() { close(v.stopping) })
		if err := v.reported(t.Context(), func(*pb.WorkProgress) error { return nil }, until); !errors.Is(err, errStopping) {
			t.Error(err)
		}
	})
}
