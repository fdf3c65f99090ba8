package conn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestRecent: an answer serves those who ask at once and soon after, an error only the one who
// got it, and later it is found out anew.
func TestRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Recent[int]
		asked := 0
		find := func(context.Context) (int, error) {
			asked++
			time.Sleep(time.Second)
			if asked == 1 {
				return 0, errors.New("no answer")
			}
			return asked, nil
		}
		answers, failures := make(chan int, 10), make(chan error, 10)
		for range 10 {
			go func() {
				if n, err := r.Ask(t.Context(), find); err != nil {
					failures <- err
				} else {
					answers <- n
				}
			}()
		}
		synctest.Wait() // one of them finds it out
		leaves, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := r.Ask(leaves, find); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who left got %v", err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if len(failures) != 1 || len(answers) != 9 || asked != 2 {
			t.Errorf("%d failed, %d have an answer, %d were found out; want 1, 9 and 2", len(failures), len(answers), asked)
		}
		if n, err := r.Ask(t.Context(), find); n != 2 || err != nil {
			t.Errorf("soon after: %d, %v; want the answer that was found out", n, err)
		}
		time.Sleep(recentFor)
		if n, err := r.Ask(t.Context(), find); n != 3 || err != nil {
			t.Errorf("later: %d, %v; want another answer", n, err)
		}
	})
}
