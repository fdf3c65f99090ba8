package converge

import (
	"slices"
	"time"
)

// late reports whether the rollout timeout of an instance has passed. The time counts from the
// request of the instance, so a crash does not restart it.
func (p Process) late(in *Instance, now time.Time) bool {
	timeout := p.RolloutTimeout
	if timeout <= 0 {
		timeout = DefaultRolloutTimeout
	}
	return in.State != Running && !now.Before(in.Wanted.Add(timeout))
}

// lost reports whether an instance was on a lost cell.
func (p Process) lost(i *Instance) bool { return i.OnCell() && p.Lost[i.Cell] }

// runs reports whether a slot has an instance that runs and is to run on.
func (p Process) runs(k Key) bool {
	in := p.Slots[k].Instance
	return in != nil && in.State == Running && !in.Retire && in.Epoch == p.Epoch && !p.lost(in)
}

// runner returns the definition that serves an index: the active one if it runs, else the healthy
// one, else the first other one that runs. It returns "" if none does.
func (p Process) runner(i int) string {
	for _, id := range []string{p.Active, p.Healthy} {
		if p.runs(Key{id, i}) {
			return id
		}
	}
	other := ""
	for k := range p.Slots {
		if k.Index == i && (other == "" || k.Definition < other) && p.runs(k) {
			other = k.Definition
		}
	}
	return other
}

// runsAnywhere reports whether any desired instance runs a definition.
func (p Process) runsAnywhere(id string) bool {
	for i := range p.Instances {
		if p.runs(Key{id, i}) {
			return true
		}
	}
	return false
}

// proved returns the definition to mark as the healthy one, or "" if that is unchanged.
func (p Process) proved() string {
	switch {
	case p.Single || p.Active == p.Healthy:
		return ""
	case p.runsAnywhere(p.Active):
		return p.Active
	case p.Healthy != "":
		return ""
	}
	// The client was faster than the first Heal. The latest former definition that runs is proven, too.
	for _, id := range slices.Backward(p.Former) {
		if p.runsAnywhere(id) {
			return id
		}
	}
	return ""
}

// proven reports whether the active definition has run.
func (p Process) proven() bool {
	return p.Active == p.Healthy || p.Single && p.runsAnywhere(p.Active)
}

// failed reports whether the process gives up its active definition, which runs nowhere.
func (p Process) failed(now time.Time) bool {
	if p.FallBackAfter <= 0 || p.Healthy == "" || p.Healthy == p.Active || p.runsAnywhere(p.Active) {
		return false
	}
	for i := range p.Instances {
		if in := p.Slots[Key{p.Active, i}].Instance; in != nil && in.Epoch == p.Epoch && !now.Before(in.Wanted.Add(p.FallBackAfter)) {
			return true
		}
	}
	return false
}

// unnamed returns the former definitions that nothing refers to.
func (p Process) unnamed() []string {
	named := map[string]bool{p.Active: true, p.Healthy: true}
	for k, s := range p.Slots {
		if s != (Slot{}) {
			named[k.Definition] = true
		}
	}
	var out []string
	for _, id := range p.Former {
		if !named[id] {
			out = append(out, id)
		}
	}
	return out
}
