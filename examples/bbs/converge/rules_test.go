package converge_test

import "dbcontroller.dev/examples/bbs/converge"

// check checks one action on a slot against the rules of the documents, on the state that it was
// decided on.
func (w *world) check(p converge.Process, a converge.Action) {
	w.keepsRunning(p, a)
	if a.Op != converge.Place && a.Op != converge.Replace && a.Op != converge.Restart && a.Op != converge.GiveUp {
		return
	}
	if w.deleted || a.Key.Index >= p.Instances {
		w.t.Fatalf("%s at %v, which is not desired", a.Op, a.Key)
	}
	proven := p.Healthy == p.Active || runs(p, p.Active)
	base := p.Healthy
	if proven || base == "" {
		base = p.Active
	}
	// The first heal may come in the same step.
	if p.Healthy == "" && !proven && !p.Single {
		for _, id := range p.Former {
			if runs(p, id) {
				base = id
			}
		}
	}
	served := w.served(p, a.Key.Index)
	switch a.Op {
	case converge.Place:
		if a.Key.Definition != base || served != "" {
			w.t.Fatalf("%v starts, the healthy one is %s and %q runs there: %s", a.Key, base, served, w.show())
		}
	case converge.Restart:
		if a.Key.Definition != base && a.Key.Definition != p.Active {
			w.t.Fatalf("%v starts again, healthy is %s and active %s", a.Key, base, p.Active)
		}
	case converge.Replace:
		w.replaces(p, a, base, proven)
	case converge.GiveUp:
		timeout := p.RolloutTimeout
		if timeout == 0 {
			timeout = converge.DefaultRolloutTimeout
		}
		if !proven || a.Key.Definition != p.Active || served == "" || served == p.Active || w.now.Sub(a.Was.Instance.Wanted) < timeout {
			w.t.Fatalf("%v is given up: %s", a.Key, w.show())
		}
	}
}

// keepsRunning: an instance that runs is never given up, unless its cell is lost, and one is asked
// to stop only where another one runs, or none is wanted.
func (w *world) keepsRunning(p converge.Process, a converge.Action) {
	still := map[string]converge.Instance{}
	for _, in := range []*converge.Instance{a.Slot.Instance, a.Slot.Evacuating} {
		if in != nil && in.OnCell() {
			still[in.GUID] = *in
		}
	}
	for _, in := range []*converge.Instance{a.Was.Instance, a.Was.Evacuating} {
		if in == nil || !in.OnCell() || p.Lost[in.Cell] {
			continue
		}
		after, there := still[in.GUID]
		if !there {
			w.t.Fatalf("%s %v drops %v, which its cell has: %s", a.Op, a.Key, *in, w.show())
		}
		desired := in.State == converge.Running && !in.Retire && a.Key.Index < p.Instances && in.Epoch == p.Epoch
		another := false
		for k := range p.Slots {
			another = another || k.Index == a.Key.Index && serves(p, k) && (k != a.Key || in == a.Was.Evacuating)
		}
		if desired && after.Retire && !another {
			w.t.Fatalf("%v is asked to stop, and no other one runs there: %s", a.Key, w.show())
		}
	}
}

// replaces: the rollout starts at the lowest index, goes on only while all others run or their time
// is over, and stays at one index until the definition is proven.
func (w *world) replaces(p converge.Process, a converge.Action, base string, proven bool) {
	if a.Key.Definition != p.Active {
		w.t.Fatalf("%v starts, active is %s", a.Key, p.Active)
	}
	for i := range p.Instances {
		active := p.Slots[converge.Key{Definition: p.Active, Index: i}].Instance
		if i != a.Key.Index && active != nil && !proven && (base != p.Active || w.served(p, i) != "") {
			w.t.Fatalf("%v starts, and %d is not proven: %s", a.Key, i, w.show())
		}
		if i < a.Key.Index && active == nil {
			w.t.Fatalf("%v starts before %d", a.Key, i)
		}
		if w.served(p, i) != "" {
			continue
		}
		waits := p.Slots[converge.Key{Definition: base, Index: i}].Instance
		timeout := p.RolloutTimeout
		if timeout == 0 {
			timeout = converge.DefaultRolloutTimeout
		}
		if waits == nil || w.now.Sub(waits.Wanted) < timeout {
			w.t.Fatalf("%v starts, and %d does not run: %s", a.Key, i, w.show())
		}
	}
}

// served returns the definition that is to serve an index: the active one, the healthy one, or the
// first that runs.
func (w *world) served(p converge.Process, i int) string {
	first := ""
	for k := range p.Slots {
		switch {
		case k.Index != i || !serves(p, k):
		case k.Definition == p.Active:
			return p.Active
		case k.Definition == p.Healthy, first == "", first != p.Healthy && k.Definition < first:
			first = k.Definition
		}
	}
	return first
}
