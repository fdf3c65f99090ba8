package converge_test

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"dbcontroller.dev/examples/bbs/converge"
	"dbcontroller.dev/internal/base/raced"
)

func init() { raced.DrawFewer() }

// rounds is how often rapid's number of sequences is drawn: by make soak, as often as it says.
func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("DBCONTROLLER_SOAK")); err == nil && n > 0 {
		return 3 * n
	}
	return 3
}

// TestConverges: whatever clients, cells and a reconciler that is interrupted have done, each of its
// steps keeps the rules, and in the end there runs what the model expects, and nothing else.
func TestConverges(t *testing.T) {
	t.Parallel()
	for range rounds() {
		rapid.Check(t, func(t *rapid.T) {
			w := newWorld(t)
			for range 4 {
				w.decide(true) // it begins as it is to be: most of what goes wrong goes wrong later
				w.cellsLook()
			}
			t.Repeat(w.events())
			w.settle()
			w.expect()
			// A rollout from a settled state reaches more than one that is disturbed.
			w.define(t)
			w.settle()
			w.expect()
		})
	}
}

// events are what happens to a process.
func (w *world) events() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"decide": func(*rapid.T) { w.decide(false) },
		"cells":  func(*rapid.T) { w.cellsLook() },
		"both":   func(*rapid.T) { w.decide(true); w.cellsLook() },
		"time": func(t *rapid.T) {
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
		},
		"scale": func(t *rapid.T) {
			if !w.deleted {
				w.p.Instances = rapid.IntRange(0, 4).Draw(t, "instances")
			}
		},
		"evacuate":     func(t *rapid.T) { w.evacuating = rapid.SampledFrom([]string{"", "c0", "c1"}).Draw(t, "evacuating") },
		"lose a cell":  func(t *rapid.T) { w.cells[rapid.SampledFrom([]string{"c0", "c1"}).Draw(t, "cell")] = false },
		"detect it":    func(*rapid.T) { w.detect() },
		"crash":        func(t *rapid.T) { w.crash(rapid.IntRange(0, 9).Draw(t, "which")) },
		"retire":       func(t *rapid.T) { w.retire(rapid.IntRange(0, 9).Draw(t, "which")) },
		"define":       func(t *rapid.T) { w.define(t) },
		"activate":     func(t *rapid.T) { w.activate(rapid.SampledFrom(w.defs).Draw(t, "definition")) },
		"delete":       func(t *rapid.T) { w.remove() },
		"create again": func(t *rapid.T) { w.create(t) },
		"": func(t *rapid.T) {
			if !w.deleted && (!slices.Contains(w.defs, w.p.Active) || w.p.Healthy != "" && !slices.Contains(w.defs, w.p.Healthy)) {
				t.Fatalf("active %s and healthy %s of %v", w.p.Active, w.p.Healthy, w.defs)
			}
		},
	}
}

// settle lets time pass, with all cells that are left and no further event, until nothing changes any
// longer, or all that does is that something crashes again.
func (w *world) settle() {
	w.detect()
	w.settles = w.now
	for range 150 {
		for range 30 {
			if !w.decide(true) && !w.cellsLook() {
				break
			}
			w.cellsLook()
		}
		w.now = w.now.Add(15 * time.Second)
	}
}

// expect compares with the model: the definition that each index must end up with.
func (w *world) expect() {
	if w.deleted || w.p.Instances == 0 {
		if len(w.p.Slots) > 0 {
			w.t.Fatalf("nothing is desired, and there is %v", w.p.Slots)
		}
		return
	}
	p := w.p
	if p.Single && runs(p, p.Active) {
		p.Healthy = p.Active // these data do not say it
	}
	base := p.Healthy
	if base == "" {
		base = p.Active
	}
	for k, s := range p.Slots {
		left := s.Instance
		if left == nil {
			left = s.Evacuating
		}
		// An evacuated instance waits for a successor that can run.
		waits := s.Evacuating == nil || w.bad[converge.Key{Definition: base, Index: k.Index}]
		if k.Index >= p.Instances || left == nil || !waits || left.Epoch != p.Epoch || left.Retire || left.OnCell() && !w.cells[left.Cell] {
			w.t.Fatalf("%v is left: %v", k, w.show())
		}
	}
	for i := range p.Instances {
		on := w.on(i)
		switch {
		case len(on) > 1:
			w.t.Fatalf("%d runs %v", i, on)
		case w.gaveUpBefore(i):
			// It had its time, before a cell looked or while it crashed by itself.
		case p.Active == p.Healthy && !w.bad[converge.Key{Definition: p.Active, Index: i}]:
			// Whatever became of other indexes, the rollout has come here.
			if !slices.Equal(on, []string{p.Active}) {
				w.t.Fatalf("%d runs %v, and could run %s: %v", i, on, p.Active, w.show())
			}
		case p.Active != p.Healthy && p.Healthy != "" && !w.bad[converge.Key{Definition: p.Healthy, Index: i}] && len(on) == 0:
			w.t.Fatalf("%d runs nothing, and could run %s: %v", i, p.Healthy, w.show())
		}
	}
	// Only an index that it cannot run at keeps a definition from being proven.
	if p.Active != p.Healthy {
		if p.FallBackAfter > 0 && p.Healthy != "" {
			w.t.Fatalf("it did not fall back: %v", w.show())
		}
		// It is tried somewhere, and cannot run there. Index 0 is not certain: it was the first one
		// where nothing ran if a client was faster than the first heal.
		tried, served := false, false
		for i := range p.Instances {
			k := converge.Key{Definition: p.Active, Index: i}
			served = served || len(w.on(i)) > 0
			switch {
			case p.Slots[k].Instance != nil:
				tried = tried || w.bad[k]
			case len(w.on(i)) == 0 && p.Healthy == "":
				w.t.Fatalf("nothing is at %d: %v", i, w.show())
			}
		}
		if served && !tried {
			w.t.Fatalf("%s is not tried: %v", p.Active, w.show())
		}
	}
	for _, id := range p.Former {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(p.Slots)), func(k converge.Key) bool { return k.Definition == id }) && id != p.Healthy {
			w.t.Fatalf("nothing names %s: %v", id, w.show())
		}
	}
}

func (w *world) gaveUpBefore(index int) bool {
	in := w.p.Slots[converge.Key{Definition: w.p.Active, Index: index}].Instance
	return in != nil && in.GivenUp && in.Wanted.Before(w.settles)
}

func (w *world) on(index int) []string {
	var out []string
	for k, s := range w.p.Slots {
		if k.Index == index && s.Instance != nil && s.Instance.State == converge.Running {
			out = append(out, k.Definition)
		}
	}
	return out
}
