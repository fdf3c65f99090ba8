package rollout_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/internal/engine/rollout"
)

// world is a store with one rollout and its deployments. Every write of the rollout is a
// compare-and-swap, and every act compares its revision, as in etcd.
type world struct {
	t        *testing.T
	rnd      *rand.Rand
	now      time.Time
	rollout  rollout.Rollout
	revision int64
	all      map[string]*deployment
	began    []string // ids, in order
	fails    string   // deployment whose gate never passes
	operator bool     // an operator interferes, until it is time to let the rollout go on
}

type deployment struct {
	current, running, target, last, switched string
	touched                                  bool // by somebody else
}

func (d *deployment) see() rollout.Deployment {
	return rollout.Deployment{CurrentVersion: d.current, UpgradeID: d.running, LastUpgradeID: d.last, LastSwitchID: d.switched}
}

// store is a compare-and-swap of the rollout. It reports whether the record was stored.
func (w *world) store(next rollout.Rollout, revision int64) bool {
	if revision != w.revision {
		return false
	}
	if err := rollout.Validate(next); err != nil {
		w.t.Fatalf("an invalid record: %v", err)
	}
	b, err := json.Marshal(next)
	if err != nil {
		w.t.Fatal(err)
	}
	w.rollout = rollout.Rollout{}
	if err := json.Unmarshal(b, &w.rollout); err != nil {
		w.t.Fatal(err)
	}
	w.revision++
	return true
}

// driver is a process with what it has read. It may be at any point when it is killed.
type driver struct {
	name     string
	read     rollout.Rollout
	revision int64
	seen     *rollout.Seen
}

// step makes one step of a driver: it reads the rollout, or the deployments, or stores.
func (w *world) step(d *driver) {
	switch {
	case d.revision == 0:
		d.read, d.revision = rollout.Clone(w.rollout), w.revision
	case d.seen == nil:
		s := rollout.Seen{Now: w.now, Driver: d.name, Clock: w.now.Sub(time.Unix(1e9, 0)), Deployments: map[string]rollout.Deployment{}, Checks: map[string]string{}}
		for name, at := range w.all {
			see := at.see()
			if name == w.fails && at.current == "v2" {
				see.Against = "it is slow"
			}
			if w.rnd.IntN(300) == 0 {
				see = rollout.Deployment{Unread: "timeout"} // for a moment
			}
			s.Deployments[name] = see
		}
		d.seen = &s
	default:
		next := rollout.Advance(d.read, *d.seen)
		if !reflect.DeepEqual(next, d.read) {
			w.store(next, d.revision)
		}
		d.seen, d.revision = nil, 0
	}
}

// act is what the controller of a deployment does with what it has read, which may be old.
func (w *world) act(name string, r rollout.Rollout, revision int64, see rollout.Deployment) {
	a := rollout.Next(r, name, see)
	d := w.all[name]
	// One transaction compares the rollout and the deployment's record.
	if a.Act == rollout.Nothing || revision != w.revision || see != d.see() {
		return
	}
	switch a.Act {
	case rollout.Begin:
		w.checkBegin(name, a)
		d.running, d.last, d.target = a.ID, a.ID, a.Target
	case rollout.Abort:
		if w.rnd.IntN(2) == 0 { // otherwise it is too late for an abort
			d.running = ""
		}
	}
}

// checkBegin holds the rules for the begin of an upgrade.
func (w *world) checkBegin(name string, a rollout.Action) {
	r := w.rollout
	item, wave, _ := r.Item(name)
	switch {
	case slices.Contains(w.began, a.ID):
		w.t.Fatalf("%s begins twice", a.ID)
	case w.all[name].running != "":
		w.t.Fatalf("%s begins while %s runs", a.ID, w.all[name].running)
	case item.Order == rollout.Forward && r.State != rollout.Running:
		w.t.Fatalf("%s begins though the rollout is %s", name, r.State)
	case item.Order == rollout.Forward && wave != r.Wave:
		w.t.Fatalf("%s of wave %d begins in wave %d", name, wave, r.Wave)
	case item.Order == rollout.Back && (r.State != rollout.RollingBack || a.Target != "v1"):
		w.t.Fatalf("%s goes back to %s while the rollout is %s", name, a.Target, r.State)
	}
	for before := range wave {
		for _, i := range r.Waves[before].Items {
			if i.Name == w.fails {
				w.t.Fatalf("%s of wave %d begins, and %s has not passed the gate of wave %d", name, wave, i.Name, before)
			}
		}
	}
	w.began = append(w.began, a.ID)
}

// databases lets upgrades go on: most switch, some end by themselves.
func (w *world) databases(p float64) {
	for _, d := range w.all {
		if d.running == "" || w.rnd.IntN(3) > 0 {
			continue
		}
		if w.rnd.Float64() < p {
			d.running = ""
			continue
		}
		d.current, d.switched, d.running = d.target, d.running, ""
	}
}

// TestAnyOrderOfSteps runs rollouts with several drivers and controllers that act on old reads, are
// killed at any point, and lose answers. Rules are checked at each begin and at the end.
func TestAnyOrderOfSteps(t *testing.T) {
	t.Parallel()
	ends := map[rollout.State]int{}
	for seed := range uint64(200) {
		w := newWorld(t, seed)
		w.run(seed)
		ends[w.rollout.State]++
		w.checkEnd(seed)
	}
	for _, s := range []rollout.State{rollout.Done, rollout.Stopped, rollout.RolledBack} {
		if ends[s] < 20 {
			t.Errorf("%d of the rollouts end as %s: the test reaches it too rarely: %v", ends[s], s, ends)
		}
	}
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1e9, 0).UTC(), all: map[string]*deployment{}, revision: 1}
	var waves [][]string
	for i := range 3 {
		var names []string
		for j := range 1 + w.rnd.IntN(3) {
			n := fmt.Sprintf("services/s/deployments/d%d%d", i, j)
			w.all[n], names = &deployment{current: "v1"}, append(names, n)
		}
		waves = append(waves, names)
	}
	p := rollout.Policy{PauseMillis: 2000, HoldMillis: 1000, GateLimitMillis: 60_000, WaveLimitMillis: 600_000, OnFailure: rollout.RollBackToo}
	if seed%3 == 0 {
		p.OnFailure = rollout.StopOnly
	}
	if seed%2 == 0 {
		w.fails = waves[w.rnd.IntN(3)][0]
	}
	w.rollout = rollout.New("r", "r-1", "v2", waves, p, "a test", w.now)
	return w
}

func (w *world) run(seed uint64) {
	type reader struct {
		r        rollout.Rollout
		revision int64
		see      rollout.Deployment
	}
	reads := map[string]reader{}
	drivers := []*driver{{name: "d0"}, {name: "d1"}}
	names := rollout.Names(w.rollout)
	for n := 0; rollout.Active(w.rollout) || w.operator; n++ {
		if n > 200_000 {
			w.t.Fatalf("seed %d does not end: %+v", seed, w.rollout)
		}
		name := names[w.rnd.IntN(len(names))]
		if w.operator && w.rnd.IntN(100) == 0 {
			w.verb(n)
		}
		switch w.rnd.IntN(12) {
		case 0: // a former leader, which comes back late
			if w.rnd.IntN(4) == 0 {
				w.step(drivers[1])
			}
		case 1, 2, 3, 4:
			w.step(drivers[0])
		case 5: // a kill: whatever it had read is gone
			if w.rnd.IntN(20) == 0 {
				i := w.rnd.IntN(2)
				drivers[i] = &driver{name: fmt.Sprintf("d%d", n)}
			}
		case 6, 7:
			reads[name] = reader{rollout.Clone(w.rollout), w.revision, w.all[name].see()}
		case 8, 9:
			if got, ok := reads[name]; ok {
				w.act(name, got.r, got.revision, got.see)
				if w.rnd.IntN(2) == 0 { // the answer was lost: it acts again
					w.act(name, got.r, got.revision, got.see)
				}
			}
		case 10:
			w.databases(0.02)
		case 11:
			w.now = w.now.Add(time.Duration(w.rnd.IntN(500)) * time.Millisecond)
			// Somebody upgrades a deployment by hand, rarely.
			if d := w.all[name]; seed%7 == 0 && d.running == "" && d.current == "v1" && w.rnd.IntN(200) == 0 {
				d.last, d.running, d.target, d.touched = fmt.Sprintf("hand-%d", n), fmt.Sprintf("hand-%d", n), "v2", true
			}
		}
	}
}

func (w *world) checkEnd(seed uint64) {
	r := w.rollout
	for wave := range r.Waves {
		for _, i := range r.Waves[wave].Items {
			d := w.all[i.Name]
			switch {
			case d.touched:
			case r.State == rollout.Done && d.current != "v2":
				w.t.Fatalf("seed %d is done, and %s serves %s", seed, i.Name, d.current)
			case wave > r.Wave && d.last != "":
				w.t.Fatalf("seed %d ends in wave %d, and %s of wave %d was touched", seed, r.Wave, i.Name, wave)
			case wave < r.Wave && d.current != "v2":
				w.t.Fatalf("seed %d ends in wave %d, and %s of wave %d serves %s", seed, r.Wave, i.Name, wave, d.current)
			case r.State == rollout.RolledBack && wave == r.Wave && (d.current != "v1" || d.running != ""):
				w.t.Fatalf("seed %d is rolled back, and %s serves %s with upgrade %q", seed, i.Name, d.current, d.running)
			}
		}
	}
	if r.State == rollout.Done && w.fails != "" {
		w.t.Fatalf("seed %d is done, though the gate of %s never passes", seed, w.fails)
	}
	if r.State != rollout.Done && !strings.Contains(r.Reason, "wave ") {
		w.t.Fatalf("seed %d is %s without a reason", seed, r.State)
	}
}

// verb is what an operator does, at any moment. After a while it only resumes.
func (w *world) verb(n int) {
	verbs := []rollout.Change{rollout.Pause(""), rollout.Stop(""), rollout.RollBack(0, ""), rollout.RollBack(1, ""), rollout.Resume(), rollout.Resume()}
	do := verbs[w.rnd.IntN(len(verbs))]
	if n > 3000 {
		do = rollout.Resume()
		w.operator = w.rollout.State != rollout.Running && w.rollout.State != rollout.Done
	}
	if next, does, err := do(w.rollout, "a test", w.now); err == nil && len(does) > 0 {
		w.store(next, w.revision)
	}
}

// TestOperatorsInterfere: whatever an operator does meanwhile, a rollout that is resumed again and
// again ends with every deployment at the target.
func TestOperatorsInterfere(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		w := newWorld(t, seed)
		w.fails, w.operator = "", true
		for range 200 { // upgrades that end by themselves stop the rollout, too
			w.run(1)
			if w.rollout.State == rollout.Done {
				break
			}
			next, _, err := rollout.Resume()(w.rollout, "a test", w.now)
			if err != nil || !w.store(next, w.revision) {
				t.Fatal(err)
			}
		}
		if w.rollout.State != rollout.Done {
			t.Fatalf("seed %d is %s: %s", seed, w.rollout.State, w.rollout.Reason)
		}
		w.checkEnd(1)
	}
}
