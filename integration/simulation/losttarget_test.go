package simulation_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/workload"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/upgradestate"
)

// lostMoments are those of a switch up to its flip.
var lostMoments = []moment{
	{"to FENCE", 0}, {"fenced v1", 0}, {"at DRAIN", 0}, {"at SEAL_TARGET", 0}, {"fenced v2", 3}, {"to SEAL_SOURCE", 0}, {"fence v1", 1},
}

// TestTargetLostInTheSwitch: somebody drops the target's database in the middle of a switch, at each
// moment up to the last rename. The old version gets its writes back and keeps them all, no later
// attempt leads into the empty database, and the report says what is wrong.
func TestTargetLostInTheSwitch(t *testing.T) {
	for i, m := range cases(lostMoments) {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { loseTarget(t, uint64(i), m) })
		})
	}
}

func loseTarget(t *testing.T, seed uint64, m moment) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystem(ctx, t)
	s.quiet()
	a, pa := s.server(ctx, "server-a", nil)
	tr := newTraffic(t, a)
	stop := drive(ctx, tr, seed, 3, 30, 20*time.Millisecond)
	pass(time.Second)
	lost := make(chan struct{})
	tp := &trap{moment: m, spring: func(*process) {
		s.db["v2"].(*memstore.Store).DropDatabase()
		close(lost)
	}}
	c := s.controllerProcess(ctx, "controller-1", tp.wrap)
	s.begin(ctx)
	soon(t, lost)
	pass(15 * time.Second) // past the deadline of the attempt
	stop()
	pass(2 * time.Minute) // as many attempts as there are
	d, err := s.admin.Get(ctx)
	s.check(err)
	if u := d.Upgrade; d.CurrentVersion != "v1" || u != nil && u.State == upgradestate.Switching {
		t.Fatalf("%s is active, upgrade %+v", d.CurrentVersion, u)
	}
	if !a.GateOpen() {
		t.Error("writes are still held")
	}
	if why := s.whyNot(ctx); !strings.Contains(why, "it is empty or the wrong database") {
		t.Errorf("what is shown: %s", why)
	}
	if len(tr.failed) > 0 {
		t.Errorf("%d calls failed: %s", len(tr.failed), tr.failed[0])
	}
	seen := workload.Seen{}
	for _, doc := range s.contents(ctx, "v1") {
		var it oldItem
		s.check(bson.Unmarshal([]byte(doc), &it))
		seen.Add(it.ID, it.String())
	}
	s.check(tr.items.Check("the old namespace", seen, oldItem.String).Err())
	if tr.acked["v1"] == 0 || tr.acked["v2"] > 0 {
		t.Errorf("acknowledged were %v", tr.acked)
	}
	cancel()
	pa.kill()
	c.kill()
}

// whyNot is all that is shown of why a switch does not begin.
func (s *system) whyNot(ctx context.Context) string {
	s.t.Helper()
	o, err := s.admin.Readiness(ctx)
	s.check(err)
	var texts []string
	if o != nil {
		texts = o.WaitsFor
	}
	ps, err := s.admin.Progress(ctx)
	s.check(err)
	for _, p := range ps {
		texts = append(texts, p.WaitsFor, p.LastError)
	}
	return strings.Join(texts, "; ")
}
