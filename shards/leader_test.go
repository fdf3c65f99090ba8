package shards_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/shards"
)

func grant(t *testing.T, s coord.Store) coord.Lease {
	t.Helper()
	l, err := s.Grant(t.Context(), 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestCampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := memcoord.New()
		// A longer key is another lock.
		if _, err := store.Commit(ctx, nil, []coord.Op{{Key: "leader2"}}); err != nil {
			t.Fatal(err)
		}
		one, two := grant(t, store), grant(t, store)
		first, err := shards.Campaign(ctx, store, "leader", "one", one)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := shards.Campaign(ctx, store, "leader", "one", one); err != nil || again != first {
			t.Fatalf("Campaign of the leader = %+v, %v, want %+v", again, err, first)
		}
		type result struct {
			lock shards.Lock
			err  error
		}
		won := make(chan result, 1)
		go func() {
			l, err := shards.Campaign(ctx, store, "leader", "two", two)
			won <- result{l, err}
		}()
		<-time.After(time.Minute)
		select {
		case r := <-won:
			t.Fatalf("two leaders: %+v", r)
		default:
		}
		began := time.Now()
		if _, err := store.Commit(ctx, []coord.Condition{first.Condition()}, []coord.Op{{Key: first.Key, Delete: true}}); err != nil {
			t.Fatal(err)
		}
		second := <-won
		if second.err != nil || second.lock.Create <= first.Create || time.Since(began) != 0 {
			t.Fatalf("after the lock is gone: %+v after %s", second, time.Since(began))
		}
		if _, err := store.Commit(ctx, []coord.Condition{first.Condition()}, nil); !errors.Is(err, coord.ErrConflict) {
			t.Fatalf("the former leader's condition: %v", err)
		}
		if _, err := store.Commit(ctx, []coord.Condition{second.lock.Condition()}, nil); err != nil {
			t.Fatalf("the leader's condition: %v", err)
		}

		// A lease that ends while it waits, and a context that does.
		go func() {
			l, err := shards.Campaign(ctx, store, "leader", "one", one)
			won <- result{l, err}
		}()
		synctest.Wait()
		store.Expire(one.ID())
		if r := <-won; !errors.Is(r.err, coord.ErrLeaseLost) {
			t.Fatalf("Campaign under a lost lease: %+v", r)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := shards.Campaign(short, store, "leader", "three", grant(t, store)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Campaign in vain: %v", err)
		}
	})
}

// A commit whose answer was lost is found to have won.
func TestCampaignWithLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memcoord.New()
		var once sync.Once
		store.OnCommit(func([]coord.Condition, []coord.Op) (f memcoord.Fault) {
			once.Do(func() { f = memcoord.LoseAnswer })
			return f
		})
		lock, err := shards.Campaign(t.Context(), store, "leader", "one", grant(t, store))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Commit(t.Context(), []coord.Condition{lock.Condition()}, nil); err != nil {
			t.Fatal(err)
		}
	})
}

// Leadership passes on when the leader is cut off, at once when it ends, and work that
// fails ends Lead.
func TestLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := memcoord.New()
		leaders := make(chan string, 10)
		broken := errors.New("broken")
		fail := make(chan struct{})
		lead := func(ctx context.Context, store coord.Store, id string) chan error {
			ended := make(chan error, 1)
			go func() {
				ended <- shards.Lead(ctx, store, "driver", id, zap.NewNop(), func(ctx context.Context) error {
					leaders <- id
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-fail:
						return broken
					}
				})
			}()
			return ended
		}
		one := root.Client()
		oneCtx, cancel := context.WithCancel(t.Context())
		defer cancel()
		oneEnded := lead(oneCtx, one, "one")
		if who := <-leaders; who != "one" {
			t.Fatalf("%s leads", who)
		}
		two := root.Client()
		twoCtx, cancelTwo := context.WithCancel(t.Context())
		defer cancelTwo()
		twoEnded := lead(twoCtx, two, "two")
		<-time.After(time.Minute)
		one.Cut()
		began := time.Now()
		if who := <-leaders; who != "two" || time.Since(began) != shards.DefaultTTL {
			t.Fatalf("%s leads after %s", who, time.Since(began))
		}
		one.Heal()
		<-time.After(time.Minute)
		began = time.Now()
		cancelTwo()
		if err := <-twoEnded; err != nil {
			t.Fatalf("Lead after its context ended: %v", err)
		}
		if who := <-leaders; who != "one" || time.Since(began) != 0 {
			t.Fatalf("%s leads after %s", who, time.Since(began))
		}
		close(fail)
		if err := <-oneEnded; !errors.Is(err, broken) {
			t.Fatalf("Lead = %v, want the error of its work", err)
		}
		if _, err := root.Get(t.Context(), "driver"); !errors.Is(err, coord.ErrNotFound) {
			t.Fatalf("the key of a leader that ended: %v", err)
		}
	})
}
