package simulation_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// beginSnapshot asks twice for the rollback to the old data as they are.
func (s *system) beginSnapshot(ctx context.Context, to string) {
	s.t.Helper()
	for range 2 {
		s.begun++
		_, err := s.admin.Apply(ctx, upgradestate.Begin{
			ID: fmt.Sprintf("upgrade-%d", s.begun), TargetVersion: to, Snapshot: true,
			TransformHash: must(s.registry.Direction(other(to), to)).Hash(),
		})
		s.check(err)
	}
}

// started starts controllers with a trap.
func (s *system) started(ctx context.Context, prefix string, n int, tp *trap) map[string]*process {
	running := map[string]*process{}
	for i := range n {
		id := fmt.Sprintf("%s-%d", prefix, i)
		running[id] = s.controllerProcess(ctx, id, tp.wrap)
	}
	return running
}

// replace starts a controller that has died again, after a while.
func (s *system) replace(ctx context.Context, running map[string]*process, died <-chan *process, tp *trap) {
	s.t.Helper()
	dead := soon(s.t, died)
	<-dead.done
	for id, p := range running {
		if p == dead {
			pass(2 * time.Second)
			running[id] = s.controllerProcess(ctx, id, tp.wrap)
		}
	}
}

// soon receives, or fails the test when nothing comes.
func soon[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(5 * time.Minute):
		t.Fatal("the moment did not come")
	}
	return v
}

// mortal is a trap that kills, and tells whom.
func mortal(m moment) (*trap, <-chan *process) {
	died := make(chan *process, 1)
	return &trap{moment: m, spring: func(p *process) {
		p.die()
		died <- p
	}}, died
}

// push writes new items, one after the other, until one is answered by a version. It
// returns those that were answered by another version before.
func push(t *testing.T, server http.Handler, until string) (before []oldItem, last oldItem) {
	for i := int64(0); ; i++ {
		item := oldItem{fmt.Sprintf("late-%d", i), i, int(i % 3)}
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequest(http.MethodPut, fmt.Sprintf("/items/%s?n=%d&parts=%d", item.ID, item.N, item.Parts), nil))
		switch {
		case w.Code == http.StatusServiceUnavailable: // held too long, and refused
		case w.Code != http.StatusOK:
			t.Errorf("PUT %s: %d %s", item.ID, w.Code, w.Body)
			return before, item
		case w.Header().Get("Version") == until:
			return before, item
		default:
			before = append(before, item)
		}
		pass(10 * time.Millisecond)
	}
}

// unchanged fails the test unless a version holds these records byte for byte, and no others.
func (s *system) unchanged(ctx context.Context, version string, want map[string]string) {
	s.t.Helper()
	got := s.contents(ctx, version)
	for key, doc := range want {
		if has, ok := got[key]; !ok || has != doc {
			s.t.Errorf("%s: %s is %v, want %v", version, key, bson.Raw(has), bson.Raw(doc))
		}
		delete(got, key)
	}
	for key := range got {
		s.t.Errorf("%s: %s is there, and should not be", version, key)
	}
}

func put1(held map[string]string, it oldItem) {
	held["items1/"+record.StringKey(it.ID).String()] = string(must(bson.Marshal(it)))
}

func put2(held map[string]string, it oldItem) {
	for _, r := range newRecords(it.ID, it.N, it.Parts) {
		held[r.Kind+"/"+r.Key.String()] = string(r.Doc)
	}
}

// TestKillOnTheWayToTheSnapshot kills the controller that comes first to a moment of the
// rollback to the old data as they are. It goes on by itself: the old namespace holds byte
// for byte what the switch left there, and the one that was left everything that was
// acknowledged, until somebody goes forward again. That compares everything, whichever process
// is killed then: what was left behind is overwritten, and nothing else is lost.
func TestKillOnTheWayToTheSnapshot(t *testing.T) {
	raced.Leave(t)
	forward := []moment{
		{"load", 0}, {"load", 4}, {"applied", 3}, {"at HOLD", 0}, {"fenced v1", 0}, {"at SEAL_TARGET", 0}, {"fenced v2", 1}, {"fenced v2", 3}, {"flipped", 0},
	}
	for i, m := range cases([]moment{
		{"to ", 0}, {"at ", 0}, {"to HOLD", 0}, {"at HOLD", 0}, {"to FENCE", 0}, {"fence v2", 0}, {"fenced v2", 1}, {"to DRAIN", 0},
		{"at DRAIN", 0}, {"to SEAL_TARGET", 0}, {"fence v1", 0}, {"fenced v1", 0}, {"to SEAL_SOURCE", 0}, {"fence v2", 2}, {"fenced v2", 3},
		{"flip v1", 0}, {"flipped v1", 0},
	}) {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { killToSnapshot(t, uint64(i), m, forward[i%len(forward)]) })
		})
	}
}

func killToSnapshot(t *testing.T, seed uint64, back, forward moment) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystem(ctx, t)
	a, pa := s.server(ctx, "server-a", nil)
	tr := newTraffic(t, a)
	stop := drive(ctx, tr, seed, 3, 20, 15*time.Millisecond)
	pass(time.Second)
	c := s.controller(ctx, "forward", nil)
	s.switchTo(ctx, "v2")
	c.kill() // nobody follows the rollback
	pass(time.Second)
	stop()
	old, left := s.contents(ctx, "v1"), s.contents(ctx, "v2")

	tp, died := mortal(back)
	s.beginSnapshot(ctx, "v1")
	running := s.started(ctx, "back", 2, tp)
	type pushed struct {
		before []oldItem
		last   oldItem
	}
	answered := make(chan pushed, 1)
	go func() {
		before, last := push(t, a, "v1")
		answered <- pushed{before, last}
	}()
	s.replace(ctx, running, died, tp)
	s.await(ctx, "the flip to the snapshot", active("v1"))
	pass(3 * time.Second) // the controllers that are there have nothing to do
	late := soon(t, answered)
	for _, it := range late.before {
		put2(left, it)
	}
	with := maps.Clone(old)
	put1(with, late.last)
	s.unchanged(ctx, "v1", with)
	s.unchanged(ctx, "v2", left)

	for _, p := range running {
		p.kill()
	}
	again := newTraffic(t, a)
	again.lenient = true
	for _, doc := range with {
		it := itemOf(record.Record{Doc: bson.Raw(doc)})
		again.items.Put(it.ID, it)
	}
	stop = drive(ctx, again, seed+1000, 3, 20, 15*time.Millisecond)
	tp, died = mortal(forward)
	running = s.started(ctx, "again", 2, tp)
	pass(2 * time.Second)
	s.unchanged(ctx, "v2", left) // nobody has begun
	s.beginTo(ctx, "v2")
	s.replace(ctx, running, died, tp)
	s.await(ctx, "the flip", active("v2"))
	pass(time.Second)
	stop()
	again.settle(ctx, s)
	cancel()
	for _, p := range running {
		p.kill()
	}
	pa.kill()
}

// TestAbortOnTheReverseSync has an operator abort at each step of the rollback, with sync and to
// the snapshot. Writes go on at once in the version that stays, nothing is lost, and the way
// back with sync is open.
func TestAbortOnTheReverseSync(t *testing.T) {
	raced.Leave(t)
	for i, m := range cases([]moment{
		{"to ", 0}, {"to HOLD", 0}, {"to FENCE", 0}, {"fence v2", 0}, {"fenced v2", 0}, {"to DRAIN", 0},
		{"to SEAL_TARGET", 0}, {"fence v1", 0}, {"fenced v1", 0}, {"to SEAL_SOURCE", 0}, {"fence v2", 2}, {"fenced v2", 2}, {"flip v1", 0},
	}) {
		for _, snapshot := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/snapshot %t", m, snapshot), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { abortBack(t, uint64(i), m, snapshot) })
			})
		}
	}
}

func abortBack(t *testing.T, seed uint64, m moment, snapshot bool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystem(ctx, t)
	a, pa := s.server(ctx, "server-a", nil)
	tr := newTraffic(t, a)
	stop := drive(ctx, tr, seed, 3, 20, 15*time.Millisecond)
	pass(time.Second)
	forward := s.controller(ctx, "forward", nil)
	s.switchTo(ctx, "v2")
	forward.kill()
	pass(time.Second)
	aborted := make(chan time.Time, 1)
	tp := &trap{moment: m, spring: func(*process) {
		for range 2 {
			_, err := s.admin.Apply(ctx, upgradestate.Abort{ID: fmt.Sprintf("upgrade-%d", s.begun), Reason: "a test"})
			s.check(err)
		}
		aborted <- time.Now()
	}}
	// The second request for the snapshot changes nothing: the first one runs.
	if snapshot {
		s.beginSnapshot(ctx, "v1")
		s.begun--
	} else {
		s.beginTo(ctx, "v1")
	}
	var running map[string]*process
	if m.what == "to " {
		// Alone: before the first step nothing keeps another controller from flipping to a
		// snapshot while this one is at its moment, and the abort would come too late.
		running = map[string]*process{"controller": s.controllerProcess(ctx, "controller", tp.wrap)}
	} else {
		running = s.started(ctx, "controller", 2, tp)
	}
	begun := soon(t, aborted)
	d := s.await(ctx, "the end of the abort", rest)
	if took := time.Since(begun); took > 200*time.Millisecond {
		t.Errorf("the abort took %s", took)
	}
	if d.CurrentVersion != "v2" {
		t.Fatalf("%s is active, the flip overtook the abort", d.CurrentVersion)
	}
	pass(100 * time.Millisecond)
	if !a.GateOpen() {
		t.Error("writes do not go on after the abort")
	}
	pass(time.Second)
	for _, to := range []string{"v1", "v2"} {
		s.begun++ // the id of a second request is used up
		s.switchTo(ctx, to)
		pass(500 * time.Millisecond)
	}
	stop()
	tr.settle(ctx, s)
	cancel()
	for _, p := range running {
		p.kill()
	}
	pa.kill()
}
