package syncer_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
)

// A controller that slept while it applied a good state wakes up when the group is
// parked again, for the same reason as before. Its success is of the past.
func TestLateSuccessLeavesNewerParking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		key := keyIn(1, 0)
		w.put("a1", key, -1)
		gate := faultstore.NewGate(1)
		sleep := faultstore.NewToggle(faultstore.On(gate, faultstore.Apply))
		a, b := w.owner(0, 1, 2), w.owner(3)
		ea := w.engine(a, func(p *syncer.Parts) { p.Target = faultstore.Wrap(p.Target, sleep) })
		eb := w.engine(b, nil)
		w.eventually("parking", func() bool { return len(w.parked()) == 1 })
		<-time.After(3 * time.Second) // both know of it
		sleep.On()
		w.put("a1", key, 5)
		<-gate.Held()
		a.Lose(1)
		w.put("a1", key, -2)
		b.Take(1)
		<-time.After(3 * time.Second)
		a.Forget(1)
		<-time.After(time.Second)
		gate.Open()
		<-time.After(10 * time.Second)
		if n := len(w.parked()); n != 1 {
			t.Errorf("%d groups are parked, want the one that cannot be transformed", n)
		}
		if p, _ := eb.progress(1); p.Parked != 1 {
			t.Errorf("the owner knows of %d parked groups, want 1", p.Parked)
		}
		ea.stop(t)
		eb.stop(t)
	})
}

// listing is a Journal whose lists of parked groups take their time on the rollback.
type listing struct {
	syncer.Journal
	listed, release chan struct{}
}

func (l *listing) Parked(ctx context.Context, dir syncer.DirectionKey, shard int) ([]syncer.Parked, error) {
	list, err := l.Journal.Parked(ctx, dir, shard)
	select {
	case l.listed <- struct{}{}:
		<-l.release
	default:
	}
	return list, err
}

// What is parked while a list of parked groups is on its way is not undone by the list.
func TestOldListForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := &listing{listed: make(chan struct{}), release: make(chan struct{})}
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { l.Journal, p.Journal = p.Journal, l })
		w.eventually("the copy", e.synced)
		<-l.listed
		w.put("a1", keyIn(1, 0), -1)
		parked := func() bool { p, _ := e.progress(1); return p.Parked == 1 }
		w.eventually("parking", parked)
		close(l.release)
		for range 1000 {
			if !parked() {
				t.Fatal("the parked group was forgotten")
			}
			<-time.After(time.Millisecond)
		}
		e.stop(t)
	})
}

// A list that cannot keep up with what is parked does not keep everything else waiting.
func TestManyParkedGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		slow := &slowList{}
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { slow.Journal, p.Journal = p.Journal, slow })
		w.eventually("the copy", e.synced)
		w.begin()
		toks := w.tokens("v1")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ctx.Err() == nil; i++ {
				_ = w.src.Write(ctx, toks, []record.Mutation{mutation("a1", keyIn(1, i), -1)}) // until ctx ends
				<-time.After(20 * time.Millisecond)
			}
		}()
		<-time.After(5 * time.Second)
		// The other shards have nothing to do with it.
		w.eventually("ready shards", func() bool { return len(w.ready()) == ring-1 })
		cancel()
		<-done
		e.stop(t)
	})
}

type slowList struct{ syncer.Journal }

func (s *slowList) Parked(ctx context.Context, dir syncer.DirectionKey, shard int) ([]syncer.Parked, error) {
	list, err := s.Journal.Parked(ctx, dir, shard)
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
	}
	return list, err
}

// An entry that another controller made of an older state does not stay for ever.
func TestParkedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		key := keyIn(1, 0)
		w.put("a1", key, -1)
		e := w.engine(w.owner(0, 1, 2, 3), nil)
		w.eventually("parking", func() bool { return len(w.parked()) == 1 })
		entry := w.parked()[0]
		w.put("a1", key, 5)
		w.eventually("the end of it", func() bool { return len(w.parked()) == 0 })
		w.check(w.store.Park(t.Context(), entry))
		w.eventually("the end of it again", func() bool { return len(w.parked()) == 0 })
		if got := w.target("a2", key); got != 5 {
			t.Errorf("the target holds %d, want 5", got)
		}
		e.stop(t)
	})
}

// An engine that has lost its shards without noticing parks nothing: others may have
// applied since what it saw. The next owner parks what it finds itself.
func TestParkedUnderTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var tries atomic.Int64
		counted := func(p *syncer.Parts) { p.Journal = countParks{p.Journal, &tries} }
		lost := w.owner(0, 1, 2, 3)
		e := w.engine(lost, counted)
		w.eventually("the copy", e.synced)
		lost.Lose(0, 1, 2, 3)
		w.put("a1", keyIn(1, 0), -1)
		w.put("c1", "bad", 1)
		w.eventually("attempts", func() bool { return tries.Load() > 3 })
		if parked := w.parked(); len(parked) > 0 {
			t.Errorf("who owns no shard parked %+v", parked)
		}
		// It is not asked for long after it has noticed.
		lost.Forget(0, 1, 2, 3)
		<-time.After(5 * time.Second)
		noticed := tries.Load()
		<-time.After(10 * time.Second)
		if tries.Load() != noticed {
			t.Errorf("%d attempts to park without any shard", tries.Load()-noticed)
		}
		next := w.engine(w.owner(0, 1, 2, 3), nil)
		w.eventually("parking", func() bool { return len(w.parked()) == 2 })
		e.stop(t)
		next.stop(t)
	})
}

// A key that has no group blocks as long as it is there, and nothing else suffers.
func TestKeyWithoutGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("c1", "bad-1", 1)
		w.put("c1", "good", 2)
		e := w.engine(w.owner(0, 1, 2, 3), nil)
		w.eventually("the copy", func() bool { return w.target("c2", "good") == 2 })
		w.put("c1", "bad-2", 1)
		w.eventually("parking", func() bool { return len(w.parked()) == 2 })
		for _, p := range w.parked() {
			if p.Kind != "c1" || p.Key != "bad-1" && p.Key != "bad-2" {
				t.Errorf("parked is %s/%s", p.Kind, p.Key)
			}
		}
		for _, key := range []string{"bad-1", "bad-2"} {
			w.check(w.src.Write(t.Context(), w.tokens("v1"), []record.Mutation{{Kind: "c1", Key: record.StringKey(key)}}))
		}
		w.eventually("the end of it", func() bool { return len(w.parked()) == 0 })
		w.begin()
		w.eventually("ready", w.allReady)
		e.stop(t)
	})
}

// TestOrphansAreParked: a target record whose key belongs to no group is seen by the
// comparison, blocks the switch, and does so no more once it is gone.
func TestOrphansAreParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(w.src, "v1", mutation("c1", "bad-1", 1)) // no key of c1 that has a group
		w.write(w.src, "v1", mutation("c1", "good", 1))
		w.write(w.dst, "v2", mutation("c2", "good", 1))
		w.flip("")
		back := w.reverseSync()
		parked := func() []syncer.Parked {
			list, err := w.store.Parked(t.Context(), syncer.Key(2, w.back, 0), -1)
			w.check(err)
			return list
		}
		w.eventually("the orphan to be parked", func() bool { return len(parked()) > 0 })
		if p := parked(); len(p) != 1 || p[0].Kind != "c1" || p[0].Key != "bad-1" || !strings.Contains(p[0].Error, "in v1 alone") {
			t.Errorf("parked are %+v", p)
		}
		rep, err := verify.New(w.dst, w.src, w.back).Run(t.Context(), transform.View{Tokens: w.tokens("v2")}, transform.View{Tokens: w.tokens("v1")}, verify.Recheck{Tries: 1}, nil)
		w.check(err)
		if rep.Mismatched != 1 || len(rep.Examples) != 1 || !strings.Contains(rep.Examples[0], "c1 bad-1") {
			t.Errorf("verify reports %+v", rep)
		}
		w.write(w.src, "v1", record.Mutation{Kind: "c1", Key: record.StringKey("bad-1")})
		for i := range 5 { // the store shows what is a few writes old
			w.write(w.src, "v1", mutation("b1", "other", i))
		}
		w.eventually("the orphan to be forgotten", func() bool { return len(parked()) == 0 })
		back.stop(t)
	})
}
