package conn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// TestRounds: calls that come while one is under way share the next one, which begins after
// they came; a caller that leaves is not waited for, and no round is longer than it may be.
func TestRounds(t *testing.T) {
	var mu sync.Mutex
	var sizes []int
	begun, goOn := make(chan struct{}, 10), make(chan error)
	rs := Rounds[int, int]{Most: 3, Do: func(ctx context.Context, asked []int) (int, error) {
		begun <- struct{}{}
		err := <-goOn
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, len(asked))
		return asked[0], err
	}}
	var g errgroup.Group
	answers := make([]int, 6)
	ask := func(i int) {
		g.Go(func() (err error) { answers[i], err = rs.Ask(context.Background(), i); return err })
	}
	ask(0)
	<-begun
	for i := 1; i < 5; i++ {
		ask(i)
		await(t, func() bool {
			rs.mu.Lock()
			defer rs.mu.Unlock()
			n := 0
			for _, r := range rs.waiting {
				n += len(r.asked)
			}
			return n == i
		})
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := rs.Ask(gone, 5); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for range 3 {
		goOn <- nil
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 1, 1, 1, 4, 0}; !slices.Equal(answers, want) || !slices.Equal(sizes, []int{1, 3, 2}) {
		t.Fatalf("answers %v in rounds of %v", answers, sizes)
	}
	failed := errors.New("no")
	ask(0)
	select {
	case goOn <- failed:
	case <-time.After(time.Minute):
		t.Fatal("no round was made after the last one had ended")
	}
	if err := g.Wait(); !errors.Is(err, failed) {
		t.Fatal(err)
	}
}

// TestRoundsOverADistance: a round with patience does not delay the next one until it ends, and each
// call gets the answer of its own round.
func TestRoundsOverADistance(t *testing.T) {
	begun, goOn := make(chan int, 3), [3]chan struct{}{make(chan struct{}), make(chan struct{}), make(chan struct{})}
	rs := Rounds[int, int]{Patience: time.Millisecond, Do: func(_ context.Context, asked []int) (int, error) {
		begun <- asked[0]
		<-goOn[asked[0]]
		return asked[0], nil
	}}
	var g errgroup.Group
	answers := make([]int, len(goOn))
	for i := range answers {
		g.Go(func() (err error) { answers[i], err = rs.Ask(t.Context(), i); return err })
		select {
		case <-begun:
		case <-time.After(time.Minute):
			t.Fatalf("round %d waits for the ones before it", i)
		}
	}
	for i := len(goOn) - 1; i >= 0; i-- {
		close(goOn[i])
	}
	if err := g.Wait(); err != nil || !slices.Equal(answers, []int{0, 1, 2}) {
		t.Errorf("answers %v, %v", answers, err)
	}
}

// await waits for a condition.
func await(t testing.TB, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(5 * time.Minute) // only a standstill takes as long
	defer limit.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatal("waited five minutes in vain")
		}
	}
}
