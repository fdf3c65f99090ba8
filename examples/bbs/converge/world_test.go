package converge_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"dbcontroller.dev/examples/bbs/converge"
)

// world is a process, cells that run its instances, and what becomes of both.
type world struct {
	t          *rapid.T
	now        time.Time
	p          converge.Process
	deleted    bool
	defs       []string              // that the process has
	bad        map[converge.Key]bool // never run
	cells      map[string]bool       // alive
	evacuating string
	settles    time.Time
	guids      int
	drawn      int
	made       int // definitions and processes, for their names
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: now, bad: map[converge.Key]bool{}, cells: map[string]bool{"c0": true, "c1": true, "c2": true}}
	w.p.Slots, w.p.Lost = map[converge.Key]converge.Slot{}, map[string]bool{}
	w.deleted = true
	w.create(t)
	return w
}

// create makes the process, or another one of the same guid.
func (w *world) create(t *rapid.T) {
	if !w.deleted {
		w.remove()
	}
	w.made++
	w.deleted, w.defs = false, []string{"d0"}
	w.p = converge.Process{
		Instances: rapid.IntRange(0, 4).Draw(t, "instances"), Epoch: fmt.Sprint("e", w.made), Active: "d0",
		RolloutTimeout: time.Duration(rapid.SampledFrom([]int{0, 10, 300}).Draw(t, "rollout timeout")) * time.Second,
		Slots:          w.p.Slots, Lost: w.p.Lost,
	}
	if rapid.IntRange(0, 4).Draw(t, "falls back") == 0 {
		w.p.FallBackAfter = 40 * time.Second
	}
	if rapid.IntRange(0, 4).Draw(t, "single") == 0 {
		w.p.Single = true
	}
}

func (w *world) remove() {
	w.deleted, w.defs = true, []string{"d0"}
	w.p = converge.Process{Slots: w.p.Slots, Lost: w.p.Lost}
}

// define has a client add a definition and activate it. It may be bad everywhere or at some index.
func (w *world) define(t *rapid.T) {
	if w.deleted {
		return
	}
	w.made++
	id := fmt.Sprint("d", w.made)
	bad := rapid.SampledFrom([]string{"", "", "all", "some"}).Draw(t, "bad")
	for i := range 4 {
		w.bad[converge.Key{Definition: id, Index: i}] = bad == "all" || bad == "some" && rapid.Bool().Draw(t, "bad here")
	}
	w.defs = append(w.defs, id)
	w.activate(id)
}

func (w *world) activate(id string) {
	if w.deleted || id == w.p.Active {
		return
	}
	w.p.Former = slices.DeleteFunc(w.p.Former, func(d string) bool { return d == id || d == w.p.Active })
	w.p.Former, w.p.Active = append(w.p.Former, w.p.Active), id
	if w.p.Single {
		w.defs, w.p.Former = []string{id}, nil
	}
}

func (w *world) detect() {
	for c, alive := range w.cells {
		w.p.Lost[c] = !alive
	}
}

func (w *world) keys() []converge.Key {
	return slices.SortedFunc(maps.Keys(w.p.Slots), func(a, b converge.Key) int {
		if a.Index != b.Index {
			return a.Index - b.Index
		}
		return strings.Compare(a.Definition, b.Definition)
	})
}

// some returns one of the slots with an instance.
func (w *world) some(which int) (k converge.Key, s converge.Slot, ok bool) {
	keys := slices.DeleteFunc(w.keys(), func(k converge.Key) bool { return w.p.Slots[k].Instance == nil })
	if len(keys) == 0 {
		return k, s, false
	}
	k = keys[which%len(keys)]
	return k, w.p.Slots[k], true
}

func (w *world) crash(which int) {
	if k, s, ok := w.some(which); ok && s.Instance.OnCell() && w.cells[s.Instance.Cell] {
		if err := s.Crash(s.Instance.GUID, s.Instance.Cell, "by itself", w.now); err != nil {
			w.t.Fatal(err)
		}
		w.p.Slots[k] = s
	}
}

func (w *world) retire(which int) {
	if k, s, ok := w.some(which); ok {
		s.RetireInstance()
		w.p.Slots[k] = s
	}
}

// cellsLook has every cell that is alive do what it is to do, once. It reports whether any did.
func (w *world) cellsLook() (changed bool) {
	for _, k := range w.keys() {
		s := w.p.Slots[k]
		for _, in := range []*converge.Instance{s.Instance, s.Evacuating} {
			switch {
			case in == nil || in.OnCell() && !w.cells[in.Cell]:
			case in.State == converge.Unclaimed:
				for _, cell := range []string{"c0", "c1", "c2"} {
					if w.cells[cell] && cell != w.evacuating {
						w.guids++
						_ = s.Claim(fmt.Sprint("g", w.guids), cell, w.now) // another one may have it
					}
				}
			case in.Retire:
				s.Remove(in.GUID, in.Cell)
			case in.State == converge.Claimed && w.bad[k]:
				_ = s.Crash(in.GUID, in.Cell, "bad", w.now)
			case in.State == converge.Claimed:
				_ = s.Start(in.GUID, in.Cell, w.now)
			case in.Cell == w.evacuating && in == s.Instance:
				_ = s.Evacuate(in.GUID, in.Cell, w.now) // later, while it has a predecessor
			}
		}
		changed = changed || !s.Equal(w.p.Slots[k])
		w.p.Slots[k] = s
	}
	return changed
}

// decide decides, and does what was decided from some action on, up to another one. It reports
// whether there was any.
func (w *world) decide(all bool) bool {
	actions := converge.Decide(w.p, w.now)
	if !all && len(actions) > 0 {
		from := rapid.IntRange(0, len(actions)-1).Draw(w.t, "from")
		actions = actions[from:rapid.IntRange(from, len(actions)).Draw(w.t, "to")]
	}
	before, replaced := w.p, 0
	before.Slots = maps.Clone(w.p.Slots)
	for _, a := range actions {
		switch a.Op {
		case converge.Heal:
			if w.p.Single || !slices.Contains(w.defs, a.Definition) || !runs(before, a.Definition) {
				w.t.Fatalf("%s is proven, and does not run: %v", a.Definition, w.show())
			}
			w.p.Healthy = a.Definition
		case converge.FallBack:
			if w.p.FallBackAfter == 0 || w.p.Healthy != a.Definition || !slices.Contains(w.defs, a.Definition) {
				w.t.Fatalf("falls back to %s, healthy is %s of %v", a.Definition, w.p.Healthy, w.defs)
			}
			w.activate(a.Definition)
		case converge.Prune:
			w.prune(a.Definitions)
		default:
			if !w.p.Slots[a.Key].Equal(a.Was) {
				w.t.Fatalf("%v was not so", a.Key)
			}
			if a.Op == converge.Replace {
				replaced++
			}
			w.check(before, a)
			w.apply(a)
		}
	}
	if replaced > 1 {
		w.t.Fatalf("%d are replaced at once", replaced)
	}
	return len(actions) > 0
}

func (w *world) apply(a converge.Action) {
	if a.Op == converge.Delete {
		delete(w.p.Slots, a.Key)
		return
	}
	if a.Slot.Instance != nil && a.Slot.Instance.Placement == "" {
		w.drawn++
		drawn := *a.Slot.Instance
		drawn.Placement = fmt.Sprint("placement", w.drawn)
		a.Slot.Instance = &drawn
	}
	w.p.Slots[a.Key] = a.Slot
}

func (w *world) prune(ids []string) {
	for _, id := range ids {
		for k, s := range w.p.Slots {
			if k.Definition == id && s != (converge.Slot{}) {
				w.t.Fatalf("%s goes, and is run", id)
			}
		}
		if id == w.p.Active || id == w.p.Healthy {
			w.t.Fatalf("%s goes, active is %s and healthy %s", id, w.p.Active, w.p.Healthy)
		}
		w.defs = slices.DeleteFunc(w.defs, func(d string) bool { return d == id })
		w.p.Former = slices.DeleteFunc(w.p.Former, func(d string) bool { return d == id })
	}
}

// show prints the slots for a failure.
func (w *world) show() string {
	out := fmt.Sprintf("%d instances of %s, active %s, healthy %s, former %v", w.p.Instances, w.p.Epoch, w.p.Active, w.p.Healthy, w.p.Former)
	for k, s := range w.p.Slots {
		out += fmt.Sprintf("\n%s@%d: %+v / %+v", k.Definition, k.Index, s.Instance, s.Evacuating)
	}
	return out
}

func runs(p converge.Process, id string) bool {
	for i := range p.Instances {
		if serves(p, converge.Key{Definition: id, Index: i}) {
			return true
		}
	}
	return false
}

// serves reports whether a slot has an instance that runs, and runs on.
func serves(p converge.Process, k converge.Key) bool {
	in := p.Slots[k].Instance
	return in != nil && in.State == converge.Running && in.Epoch == p.Epoch && !in.Retire && !p.Lost[in.Cell]
}
