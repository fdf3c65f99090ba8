package converge_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"dbcontroller.dev/examples/bbs/converge"
)

// world is a process, cells that run its instances, and what becomes of both.
type world struct {
	t     *rapid.T
	now   time.Time
	p     converge.Process
	defs  []string        // that the process has
	bad   map[string]bool // definitions that never run
	cells map[string]bool // alive
	guids int
	drawn int
}

func newWorld(t *rapid.T) *world {
	return &world{
		t: t, now: now, defs: []string{"d0"}, bad: map[string]bool{}, cells: map[string]bool{"c0": true, "c1": true, "c2": true},
		p: converge.Process{
			Instances: rapid.IntRange(0, 3).Draw(t, "instances"), Epoch: "e0", Active: "d0", Timeouts: map[string]time.Duration{"d0": 0}, Slots: map[int]converge.Slot{}, Lost: map[string]bool{},
		},
	}
}

// decide decides, and does what was decided from some action on, up to another one.
func (w *world) decide(all bool) {
	actions := converge.Decide(w.p, w.now)
	if !all && len(actions) > 0 {
		from := rapid.IntRange(0, len(actions)-1).Draw(w.t, "from")
		actions = actions[from:rapid.IntRange(from, len(actions)).Draw(w.t, "to")]
	}
	replaced := 0
	for _, a := range actions {
		switch a.Op {
		case converge.Heal:
			w.p.Healthy = a.Definition
		case converge.FallBack:
			if w.p.Healthy != a.Definition || !slices.Contains(w.defs, a.Definition) {
				w.t.Fatalf("falls back to %s, healthy is %s of %v", a.Definition, w.p.Healthy, w.defs)
			}
			w.activate(a.Definition)
		case converge.Prune:
			w.prune(a.Definitions)
		case converge.Delete:
			if !w.p.Slots[a.Index].Equal(a.Was) {
				w.t.Fatalf("%d was not so", a.Index)
			}
			delete(w.p.Slots, a.Index)
		default:
			w.check(a)
			if a.Op == converge.Replace {
				replaced++
			}
			if a.Slot.Instance != nil && a.Slot.Instance.Placement == "" {
				w.drawn++
				drawn := *a.Slot.Instance
				drawn.Placement = fmt.Sprint("placement", w.drawn)
				a.Slot.Instance = &drawn
			}
			w.p.Slots[a.Index] = a.Slot
		}
	}
	if replaced > 1 {
		w.t.Fatalf("%d are replaced at once", replaced)
	}
}

// check checks what no action on a slot may do: an instance that runs is never given up, unless
// its cell is lost, and one is asked to stop only where another one runs, or none is wanted.
func (w *world) check(a converge.Action) {
	still := map[string]bool{}
	for _, in := range []*converge.Instance{a.Slot.Instance, a.Slot.Evacuating} {
		if in != nil && in.OnCell() {
			still[in.GUID] = true
		}
	}
	for _, in := range []*converge.Instance{a.Was.Instance, a.Was.Evacuating} {
		if in != nil && in.State == converge.Running && !w.p.Lost[in.Cell] && !still[in.GUID] {
			w.t.Fatalf("%s gives up %v, which runs", a.Op, *in)
		}
	}
	if a.Op == converge.Retire && a.Index < w.p.Instances && (a.Slot.Instance == nil || a.Slot.Instance.State != converge.Running || a.Slot.Instance.Retire) {
		w.t.Fatalf("%v is asked to stop before its successor runs", a.Slot)
	}
	if a.Op == converge.Replace {
		for i := range w.p.Instances {
			if s := w.p.Slots[i]; i != a.Index && (s.Instance == nil || s.Instance.State != converge.Running || s.Evacuating != nil) {
				w.t.Fatalf("%d is replaced while %d does not run alone", a.Index, i)
			}
		}
	}
}

func (w *world) prune(ids []string) {
	for _, id := range ids {
		for _, s := range w.p.Slots {
			for _, in := range []*converge.Instance{s.Instance, s.Evacuating} {
				if in != nil && in.Definition == id {
					w.t.Fatalf("%s goes, and is run", id)
				}
			}
		}
		if id == w.p.Active || id == w.p.Healthy {
			w.t.Fatalf("%s goes, active is %s and healthy %s", id, w.p.Active, w.p.Healthy)
		}
		w.defs = slices.DeleteFunc(w.defs, func(d string) bool { return d == id })
		w.p.Former = slices.DeleteFunc(w.p.Former, func(d string) bool { return d == id })
	}
}

func (w *world) activate(id string) {
	if id != w.p.Active {
		w.p.Former = slices.DeleteFunc(w.p.Former, func(d string) bool { return d == id || d == w.p.Active })
		w.p.Former, w.p.Active = append(w.p.Former, w.p.Active), id
	}
}

// cellsLook has every cell that is alive do what it is to do, once.
func (w *world) cellsLook(evacuating string) {
	for _, i := range slices.Sorted(maps.Keys(w.p.Slots)) {
		s := w.p.Slots[i]
		for _, in := range []*converge.Instance{s.Instance, s.Evacuating} {
			switch {
			case in == nil || in.OnCell() && !w.cells[in.Cell]:
			case in.State == converge.Unclaimed:
				for _, cell := range []string{"c0", "c1", "c2"} {
					if w.cells[cell] && cell != evacuating {
						w.guids++
						_ = s.Claim(fmt.Sprint("g", w.guids), cell, w.now) // another one may have it
					}
				}
			case in.Retire:
				s.Remove(in.GUID, in.Cell)
			case in.State == converge.Claimed && w.bad[in.Definition]:
				_ = s.Crash(in.GUID, in.Cell, "bad", w.now)
			case in.State == converge.Claimed:
				_ = s.Start(in.GUID, in.Cell, w.now)
			case in.Cell == evacuating && in == s.Instance:
				_ = s.Evacuate(in.GUID, in.Cell, w.now) // later, while it has a predecessor
			}
		}
		w.p.Slots[i] = s
	}
}

// TestConverges: whatever clients, cells and a reconciler that is interrupted have done, in the
// end each desired instance runs once, with the active definition, which is the healthy one, and
// there is nothing else.
func TestConverges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		evacuating := ""
		work := func(*rapid.T) { w.decide(true); w.cellsLook(evacuating) }
		for range 4 {
			work(t) // it begins as it is to be: most of what goes wrong goes wrong later
		}
		t.Repeat(map[string]func(*rapid.T){
			"decide": func(*rapid.T) { w.decide(false) },
			"cells":  func(*rapid.T) { w.cellsLook(evacuating) },
			"time": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
			},
			"scale":    func(t *rapid.T) { w.p.Instances = rapid.IntRange(0, 3).Draw(t, "instances") },
			"evacuate": func(t *rapid.T) { evacuating = rapid.SampledFrom([]string{"", "c0", "c1"}).Draw(t, "evacuating") },
			"crash":    func(t *rapid.T) { w.cells[rapid.SampledFrom([]string{"c0", "c1"}).Draw(t, "cell")] = false },
			"lose": func(*rapid.T) {
				for c, alive := range w.cells {
					w.p.Lost[c] = !alive
				}
			},
			"define": func(t *rapid.T) {
				id := fmt.Sprint("d", len(w.p.Timeouts))
				w.defs = append(w.defs, id)
				w.p.Timeouts[id] = time.Duration(rapid.IntRange(0, 20).Draw(t, "timeout")) * time.Second
				w.bad[id] = rapid.Bool().Draw(t, "bad")
				w.activate(id)
			},
			"anew": func(*rapid.T) {
				w.p.Epoch, w.p.Active, w.p.Healthy, w.p.Former, w.defs = fmt.Sprint("e", w.now.Unix(), w.drawn), "d0", "", nil, []string{"d0"}
			},
			"": func(t *rapid.T) {
				if !slices.Contains(w.defs, w.p.Active) || w.p.Healthy != "" && !slices.Contains(w.defs, w.p.Healthy) {
					t.Fatalf("active %s and healthy %s of %v", w.p.Active, w.p.Healthy, w.defs)
				}
			},
		})
		for c, alive := range w.cells {
			w.p.Lost[c] = !alive
		}
		if w.p.Healthy == "" && w.bad[w.p.Active] {
			return // there is nothing that could run
		}
		steps := 0
		for ; len(converge.Decide(w.p, w.now)) > 0 || !w.converged(evacuating); steps++ {
			if steps > 500 {
				t.Fatalf("after %d steps: %+v", steps, w.p)
			}
			w.decide(true)
			w.cellsLook(evacuating)
			w.now = w.now.Add(15 * time.Second)
		}
	})
}

func (w *world) converged(evacuating string) bool {
	for i, s := range w.p.Slots {
		in := s.Instance
		if i >= w.p.Instances || in == nil || s.Evacuating != nil || in.State != converge.Running || in.Definition != w.p.Active || in.Epoch != w.p.Epoch || !w.cells[in.Cell] || in.Cell == evacuating || in.Retire {
			return false
		}
	}
	return len(w.p.Slots) == w.p.Instances && (w.p.Instances == 0 || w.p.Healthy == w.p.Active && len(w.p.Former) == 0)
}
