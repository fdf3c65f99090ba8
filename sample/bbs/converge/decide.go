package converge

import (
	"maps"
	"slices"
	"time"
)

// Process is a process with all that there is of its instances.
type Process struct {
	Instances int    // wanted; 0 for a process that is not there
	Epoch     string // of this process: another one of its guid has another one
	Active    string // id of the definition to run
	Healthy   string // the last one that was seen to run; empty: none was
	Former    []string
	// Timeouts are how long a start may take, by definition; DefaultStartTimeout where it is 0.
	// Nil: not known. Decide then falls back at once, so that a caller who has read no
	// definitions learns for which processes it has to.
	Timeouts map[string]time.Duration
	Slots    map[int]Slot
	Lost     map[string]bool // cells that are no longer heard of
}

// DefaultStartTimeout is that of a definition that says none.
const DefaultStartTimeout = time.Minute

// Op is what an Action does.
type Op string

// The operations.
const (
	Place    Op = "place"     // a slot gets an instance
	Replace  Op = "replace"   // a slot gets a successor of the instance that runs
	Restart  Op = "restart"   // a crashed instance is to run again
	Retire   Op = "retire"    // a cell must stop an instance
	Clear    Op = "clear"     // an instance is given up
	Delete   Op = "delete"    // a slot goes
	Heal     Op = "heal"      // Definition is the healthy one
	FallBack Op = "fall back" // Definition is the active one again
	Prune    Op = "prune"     // Definitions go
)

// Action is one change. All but the last three are of a slot.
type Action struct {
	Op          Op
	Index       int
	Was, Slot   Slot // of the index: what it was decided on, and what it becomes
	Definition  string
	Definitions []string
}

// Decide returns what is to be done for a process now.
func Decide(p Process, now time.Time) []Action {
	if p.failed(now) {
		return []Action{{Op: FallBack, Definition: p.Healthy}} // the rest follows from that
	}
	var out []Action
	if p.Active != p.Healthy && p.runs(p.Active) {
		out = append(out, Action{Op: Heal, Definition: p.Active})
	}
	underWay := p.underWay()
	for i := range p.Instances {
		was := p.Slots[i]
		next, op := p.desired(was, now, underWay)
		if op == "" {
			continue
		}
		underWay = true
		out = append(out, Action{Op: op, Index: i, Was: was, Slot: next})
	}
	for _, i := range slices.Sorted(maps.Keys(p.Slots)) {
		if i >= 0 && i < p.Instances {
			continue
		}
		was := p.Slots[i]
		if next, op := p.surplus(was); op != "" {
			out = append(out, Action{Op: op, Index: i, Was: was, Slot: next})
		}
	}
	if ids := p.unnamed(); len(ids) > 0 {
		out = append(out, Action{Op: Prune, Definitions: ids})
	}
	return out
}

// current reports whether an instance is what the process asks for.
func (p Process) current(i *Instance) bool { return i.Definition == p.Active && i.Epoch == p.Epoch }

// lost reports whether an instance went with its cell.
func (p Process) lost(i *Instance) bool { return i.OnCell() && p.Lost[i.Cell] }

// runs reports whether a desired instance runs a definition.
func (p Process) runs(definition string) bool {
	for i := range p.Instances {
		if in := p.Slots[i].Instance; in != nil && in.State == Running && in.Definition == definition && in.Epoch == p.Epoch && !p.lost(in) {
			return true
		}
	}
	return false
}

// failed reports whether the active definition had its time, and no instance of it runs.
func (p Process) failed(now time.Time) bool {
	if p.Healthy == "" || p.Healthy == p.Active || p.runs(p.Active) {
		return false
	}
	timeout := p.Timeouts[p.Active]
	if timeout <= 0 && p.Timeouts != nil {
		timeout = DefaultStartTimeout
	}
	for i := range p.Instances {
		if in := p.Slots[i].Instance; in != nil && p.current(in) && !now.Before(in.Wanted.Add(timeout)) {
			return true
		}
	}
	return false
}

// underWay reports whether some desired instance does not run, or another one still runs for
// it: the next one that runs an old definition has to wait.
func (p Process) underWay() bool {
	for i := range p.Instances {
		s := p.Slots[i]
		if in := s.Instance; in == nil || in.State != Running || in.Retire || p.lost(in) || s.Evacuating != nil {
			return true
		}
	}
	return false
}

// desired is what becomes of a slot that must have an instance.
func (p Process) desired(s Slot, now time.Time, underWay bool) (Slot, Op) {
	var op Op
	if s.Evacuating != nil && p.lost(s.Evacuating) {
		s.Evacuating, op = nil, Clear
	}
	in := s.Instance
	switch {
	case in == nil || p.lost(in) || !p.current(in) && in.State != Running && !in.Retire:
		s.Instance, op = wanted(p.Active, p.Epoch, now), Place
	case in.Retire: // its cell stops it
	case in.State == Crashed && !now.Before(in.Since.Add(pause(in.Crashes))):
		next := *in
		next.State, next.Since = Unclaimed, now
		s.Instance, op = &next, Restart
	case in.State == Running && s.Evacuating != nil && !s.Evacuating.Retire:
		s.Evacuating, op = retired(s.Evacuating), Retire
	case in.State == Running && s.Evacuating == nil && !p.current(in) && !underWay:
		s.Instance, s.Evacuating, op = wanted(p.Active, p.Epoch, now), in, Replace
	}
	return s, op
}

// surplus is what becomes of a slot that must be empty.
func (p Process) surplus(s Slot) (Slot, Op) {
	was := s
	for _, in := range []**Instance{&s.Instance, &s.Evacuating} {
		if *in != nil && p.lost(*in) {
			*in = nil
		}
		*in = retired(*in)
	}
	switch {
	case s.Instance == nil && s.Evacuating == nil:
		return s, Delete
	case s.Equal(was):
		return s, "" // its cells stop them
	default:
		return s, Retire
	}
}

// unnamed are the former definitions that nothing names.
func (p Process) unnamed() []string {
	named := map[string]bool{p.Active: true, p.Healthy: true}
	for _, s := range p.Slots {
		for _, in := range []*Instance{s.Instance, s.Evacuating} {
			if in != nil {
				named[in.Definition] = true
			}
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

// pause is how long an instance rests after so many crashes in a row: not at all after the
// first three, then half a minute, doubled up to a quarter of an hour.
func pause(crashes int32) time.Duration {
	const first, longest = 30 * time.Second, 15 * time.Minute
	if crashes <= 3 {
		return 0
	}
	return min(first<<min(crashes-4, 10), longest)
}
