package syncer_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// A shard that is gained while the stream is further on needs the changes before it: the
// next batch of that stream must not carry it past them.
func TestGainedShardMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.owner(0, 1, 2, 3)
		e := w.engine(first, nil)
		w.eventually("the copy", func() bool { return len(e.engine.Progress()) == ring && e.synced() })
		// Shard 1 stays behind: nobody owns it while this happens.
		first.Leave(1)
		w.eventually("the release", func() bool { _, owned := e.progress(1); return !owned })
		key := keyIn(1, 0)
		w.put("a1", key, 7)
		w.put("a1", keyIn(0, 0), 1)
		w.eventually("a change of shard 0", func() bool { return w.target("a2", keyIn(0, 0)) == 1 })
		first.Take(1)
		w.eventually("shard 1", func() bool { _, owned := e.progress(1); return owned })
		// The stream that is open now delivers this before another one is begun.
		w.put("a1", keyIn(1, 1), 8)
		w.eventually("the change in between", func() bool { return w.target("a2", keyIn(1, 1)) == 8 })
		w.eventually("the change before", func() bool { return w.target("a2", key) == 7 })
		e.stop(t)
	})
}

// A shard that waits to be handed over is not worked on. Its checkpoint must not move on
// all the same.
func TestLeavingShardKeepsItsPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		conn := w.coord.Client()
		slow := make(chan struct{})
		var mu sync.Mutex
		armed, waiting := false, make(chan struct{})
		conn.OnCommit(func(_ []coord.Condition, ops []coord.Op) memcoord.Fault {
			mu.Lock()
			hit := armed && strings.Contains(ops[0].Key, "/checkpoints/")
			armed = armed && !hit
			mu.Unlock()
			if hit {
				close(waiting)
				<-slow
			}
			return memcoord.Deliver
		})
		a := w.owner(0, 1, 2, 3)
		e := w.engine(a, func(p *syncer.Parts) {
			s := deployment.New(conn, name, deployment.Config{})
			p.Journal, p.Deployments = s, s
		})
		w.eventually("the copy", func() bool { return len(e.engine.Progress()) == ring && e.synced() })
		<-time.After(time.Second)
		mu.Lock()
		armed = true
		mu.Unlock()
		a.Leave(2)
		<-waiting // the last checkpoint of the shard is on its way, slowly
		key := keyIn(2, 0)
		w.put("a1", key, 7)
		<-time.After(time.Minute) // idle checkpoints are due meanwhile
		close(slow)
		w.eventually("the release", func() bool { _, owned := e.progress(2); return !owned })
		b := w.owner(2)
		next := w.engine(b, nil)
		w.eventually("the change at the handover", func() bool { return w.target("a2", key) == 7 })
		e.stop(t)
		next.stop(t)
	})
}

// While writes are held nothing waits for a tick or an idle stream: a shard that is taken
// over is drained and reported at once.
func TestTakeoverInSwitchIsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("a1", keyIn(1, 0), 1)
		a, b := w.owner(0, 1), w.owner(2, 3)
		ea, eb := w.engine(a, nil), w.engine(b, nil)
		w.begin()
		w.eventually("ready", w.allReady)
		w.apply(upgradestate.StartSwitch{ID: "u"})
		w.apply(upgradestate.Held{ID: "u"})
		ea.cancel()
		<-ea.done
		a.Lose(0, 1)
		for _, k := range []string{"a1", "b1", "c1"} {
			w.apply(w.fence(k))
		}
		w.eventually("drain of what is owned", func() bool { return len(w.ready()) == 2 })
		// Everything is idle: the stream waits for up to a second, housekeeping for its tick.
		<-time.After(1100 * time.Millisecond)
		started := time.Now()
		b.Take(0, 1)
		w.eventually("drain", w.allReady)
		if took := time.Since(started); took > 50*time.Millisecond {
			t.Errorf("the takeover took %s, want no waiting", took)
		}
		eb.stop(t)
	})
}

// A controller that lost a shard and comes back believes in it for a while. What it
// reports and stores is refused, and it goes on with what it owns.
func TestLostShardIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.owner(0, 1, 2, 3)
		e := w.engine(a, nil)
		w.eventually("the copy", func() bool { return len(e.engine.Progress()) == ring && e.synced() })
		a.Lose(3) // the pool has not noticed
		w.begin()
		<-time.After(10 * time.Second)
		for _, n := range w.ready() {
			if n == 3 {
				t.Error("shard 3 was reported by who lost it")
			}
		}
		a.Forget(3)
		w.eventually("the others", func() bool { return len(w.ready()) == 3 })
		b := w.owner(3)
		other := w.engine(b, nil)
		w.eventually("the last", w.allReady)
		e.stop(t)
		other.stop(t)
	})
}
