package shards_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/shards"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	store := memcoord.New()
	pool := shards.New(store, shards.Config{Prefix: "deployment/", ID: "me", Ring: 4})
	ended := make(chan error)
	go func() { ended <- pool.Run(ctx) }()

	for len(pool.Owned()) < 4 {
		<-pool.Changes()
	}
	lock := pool.Owned()[3]
	_, err := store.Commit(ctx, []coord.Condition{lock.Condition()},
		[]coord.Op{{Key: "checkpoint/3", Value: []byte("...")}})
	fmt.Println("as the owner:", err)

	cancel()
	fmt.Println("ended:", <-ended)
	_, err = store.Commit(context.Background(), []coord.Condition{lock.Condition()},
		[]coord.Op{{Key: "checkpoint/3", Value: []byte("...")}})
	fmt.Println("afterwards refused:", errors.Is(err, coord.ErrConflict))
	// Output:
	// as the owner: <nil>
	// ended: <nil>
	// afterwards refused: true
}

// process is a pool of the tests below, without an engine: they play it.
type process struct {
	*shards.Pool
	store  *memcoord.Store
	cancel context.CancelFunc
	ended  chan error
}

func run(t *testing.T, root *memcoord.Store, id string) *process {
	t.Helper()
	p := &process{store: root.Client(), ended: make(chan error, 1)}
	p.Pool = shards.New(p.store, shards.Config{Prefix: "d", ID: id, Ring: 8})
	ctx, cancel := context.WithCancel(t.Context())
	p.cancel = cancel
	go func() { p.ended <- p.Run(ctx) }()
	return p
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	p.cancel()
	if err := <-p.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// until waits for what Changes announces.
func (p *process) until(what func() bool) {
	for !what() {
		<-p.Changes()
	}
}

func holds(t *testing.T, root *memcoord.Store, l shards.Lock) bool {
	t.Helper()
	_, err := root.Commit(t.Context(), []coord.Condition{l.Condition()}, nil)
	if err != nil && !errors.Is(err, coord.ErrConflict) {
		t.Fatal(err)
	}
	return err == nil
}

// A member that gets no shard stands by while every shard has a living owner, and only then.
func TestStandsBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := memcoord.New()
		var all []*process
		for i := range 9 { // one more than there are shards
			all = append(all, run(t, root, fmt.Sprint("m", i)))
		}
		// They play engines that give up shards at once.
		settle := func() {
			for range 100 {
				time.Sleep(time.Second)
				for _, p := range all {
					for _, n := range p.Leaving() {
						if err := p.Release(t.Context(), n); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		}
		settle()
		var idle, owner *process
		for i, p := range all {
			if got, want := p.StandsBy(), len(p.Owned()) == 0; got != want {
				t.Errorf("member %d owns %d shards and stands by: %v", i, len(p.Owned()), got)
			}
			if len(p.Owned()) == 0 {
				idle = p
			} else {
				owner = p
			}
		}
		if idle == nil {
			t.Fatal("every member owns a shard")
		}
		// A dead owner's shard has no owner until somebody takes it.
		seen := make(chan bool, 1)
		owner.store.Cut()
		idle.store.OnCommit(func([]coord.Condition, []coord.Op) memcoord.Fault {
			select {
			case seen <- idle.StandsBy():
			default:
			}
			return memcoord.Deliver
		})
		settle()
		if len(idle.Owned()) == 0 || <-seen || idle.StandsBy() {
			t.Errorf("it owns %d shards of the dead member", len(idle.Owned()))
		}
		owner.store.Heal()
		// Without its own registration it does not stand by.
		unregistered := shards.New(root.Client(), shards.Config{Prefix: "d", ID: "u", Ring: 8})
		if unregistered.StandsBy() {
			t.Error("a process that does not run stands by")
		}
		for _, p := range all {
			p.stop(t)
			if p.StandsBy() {
				t.Error("a process that has ended stands by")
			}
		}
	})
}

// A shard changes hands only by way of Leaving and Release, and then at once.
func TestHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := memcoord.New()
		a := run(t, root, "a")
		a.until(func() bool { return len(a.Owned()) == 8 })
		before := a.Owned()
		b := run(t, root, "b")
		a.until(func() bool { return len(a.Leaving()) == 4 })
		<-time.After(time.Minute)
		if len(b.Owned()) != 0 || len(a.Owned()) != 8 {
			t.Fatalf("%d and %d shards owned before a release", len(a.Owned()), len(b.Owned()))
		}
		if b.StandsBy() {
			t.Error("a member that waits for its shards stands by")
		}
		began := time.Now()
		leaving := a.Leaving()
		for i, n := range leaving {
			if err := a.Release(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			if _, still := a.Owned()[n]; still || holds(t, root, before[n]) {
				t.Fatalf("shard %d is held after its release", n)
			}
			b.until(func() bool { return len(b.Owned()) == i+1 })
			if l := b.Owned()[n]; l.Create <= before[n].Create || !holds(t, root, l) {
				t.Fatalf("shard %d was taken as %+v after %+v", n, l, before[n])
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the handover waited for %s", took)
		}
		if len(a.Leaving()) != 0 {
			t.Errorf("%v are still leaving", a.Leaving())
		}
		if err := a.Release(t.Context(), leaving[0]); err != nil {
			t.Errorf("a second release: %v", err)
		}

		// One that ends gives up everything at once, not after its time to live.
		began = time.Now()
		b.stop(t)
		if len(b.Owned()) != 0 || b.Lease() != 0 {
			t.Error("a pool that has ended owns shards")
		}
		a.until(func() bool { return len(a.Owned()) == 8 })
		if took := time.Since(began); took != 0 {
			t.Errorf("the takeover waited for %s", took)
		}
		a.stop(t)
	})
}

// Assigned back before it was released, a shard stays where it is.
func TestLeavingIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := memcoord.New()
		a := run(t, root, "a")
		a.until(func() bool { return len(a.Owned()) == 8 })
		before := a.Owned()
		b := run(t, root, "b")
		a.until(func() bool { return len(a.Leaving()) > 0 })
		b.stop(t)
		a.until(func() bool { return len(a.Leaving()) == 0 })
		if !maps.Equal(before, a.Owned()) {
			t.Errorf("locks %v became %v", before, a.Owned())
		}
		a.stop(t)
	})
}

// A release that cannot reach the store is finished later, and ends with its context.
func TestReleaseWhileCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := memcoord.New()
		a := run(t, root, "a")
		a.until(func() bool { return len(a.Owned()) == 8 })
		l := a.Owned()[5]
		a.store.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Release(ctx, 5); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Release while cut off: %v", err)
		}
		if _, still := a.Owned()[5]; still {
			t.Fatal("a shard that was let go of is owned")
		}
		a.store.Heal()
		a.until(func() bool { return a.Owned()[5].Create > l.Create }) // released, and taken again
		if holds(t, root, l) {
			t.Error("the old lock holds")
		}
		a.stop(t)
	})
}

// A lost lease empties Owned at once; the pool registers anew and goes on.
func TestLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := memcoord.New()
		a := run(t, root, "a")
		a.until(func() bool { return len(a.Owned()) == 8 })
		before, lease := a.Owned(), a.Lease()
		root.Expire(lease)
		if owned := a.Owned(); len(owned) != 0 {
			t.Fatalf("owned %v under a lost lease", owned)
		}
		if a.Lease() != 0 || len(a.Leaving()) != 0 {
			t.Fatal("a lost lease is in use")
		}
		a.until(func() bool { return len(a.Owned()) == 8 })
		for n, l := range before {
			if holds(t, root, l) || !holds(t, root, a.Owned()[n]) {
				t.Errorf("shard %d: the old lock holds, or the new one does not", n)
			}
		}
		a.stop(t)
	})
}

// A member that is stopped loses its shards to the other; when it goes on, what it
// believes to own is refused, and it takes part anew.
func TestPausedMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := memcoord.New()
		a := run(t, root, "a")
		a.until(func() bool { return len(a.Owned()) == 8 })
		b := run(t, root, "b")
		before := a.Owned()
		a.store.Pause()
		began := time.Now()
		b.until(func() bool { return len(b.Owned()) == 8 })
		if took := time.Since(began); took != shards.DefaultTTL {
			t.Errorf("taken over after %s, want the time to live", took)
		}
		if len(a.Owned()) != 8 {
			t.Error("a process that is stopped noticed")
		}
		for _, l := range before {
			if holds(t, root, l) {
				t.Errorf("%+v holds after the takeover", l)
			}
		}
		a.store.Heal()
		b.until(func() bool { return len(b.Leaving()) == 4 })
		for _, n := range b.Leaving() {
			if err := b.Release(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		a.until(func() bool { return len(a.Owned()) == 4 })
		if owned := a.Owned(); slices.ContainsFunc(slices.Collect(maps.Values(owned)), func(l shards.Lock) bool { return !holds(t, root, l) }) {
			t.Errorf("not all of %v hold", owned)
		}
		a.stop(t)
		b.stop(t)
	})
}

// A second process under one id waits for the first to end.
func TestSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := memcoord.New()
		first := run(t, root, "a/b") // with what a key must not be confused by
		first.until(func() bool { return len(first.Owned()) == 8 })
		second := run(t, root, "a/b")
		<-time.After(time.Minute)
		if len(second.Owned()) != 0 || len(first.Owned()) != 8 {
			t.Fatal("two processes take part under one id")
		}
		first.stop(t)
		second.until(func() bool { return len(second.Owned()) == 8 })
		second.stop(t)
	})
}
