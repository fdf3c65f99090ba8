package converge

import (
	"maps"
	"slices"
	"time"
)

// Process is a process with the state of all its instances.
type Process struct {
	Instances int    // desired number; 0 for a deleted process
	Epoch     string // of this creation of the process; a recreated one has another
	Active    string // id of the definition to run
	Healthy   string // the last one seen running; empty if none was
	Former    []string
	// Timeouts holds the longest start time of each definition; 0 means DefaultStartTimeout. A nil
	// map means unknown, and Decide then falls back at once. A caller that has not read the
	// definitions thus learns which processes need them.
	Timeouts map[string]time.Duration
	Slots    map[int]Slot
	Lost     map[string]bool // cells that stopped reporting
}

// DefaultStartTimeout applies to a definition without a timeout.
const DefaultStartTimeout = time.Minute

// Op is the kind of an Action.
type Op string

// The operations.
const (
	Place    Op = "place"     // puts an instance into a slot
	Replace  Op = "replace"   // starts a successor; the old instance runs until it is up
	Restart  Op = "restart"   // makes a crashed instance unclaimed again
	Retire   Op = "retire"    // asks a cell to stop an instance
	Clear    Op = "clear"     // drops a lost instance
	Delete   Op = "delete"    // deletes a slot
	Heal     Op = "heal"      // marks Definition as the healthy one
	FallBack Op = "fall back" // makes Definition the active one again
	Prune    Op = "prune"     // deletes Definitions
)

// Action is one change. Heal, FallBack and Prune change the process, all others one slot.
type Action struct {
	Op          Op
	Index       int
	Was, Slot   Slot // of the index: the state decided on, and the new state
	Definition  string
	Definitions []string
}

// Decide returns the next actions for a process. It returns none if the process is as desired.
func Decide(p Process, now time.Time) []Action {
	if p.failed(now) {
		return []Action{{Op: FallBack, Definition: p.Healthy}} // all other actions depend on this one
	}
	var out []Action
	if p.Active != p.Healthy && p.runs(p.Active) {
		out = append(out, Action{Op: Heal, Definition: p.Active})
	}
	// Only one instance is replaced at a time, so that the process keeps its capacity.
	underWay := p.underWay()
	for i := range p.Instances {
		// A missing slot is a zero Slot, and gets an instance like an empty one.
		was := p.Slots[i]
		next, op := p.desired(was, now, underWay)
		if op == "" {
			continue
		}
		// Further replacements wait for the next call.
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

// current reports whether an instance runs the active definition of this creation of the process.
func (p Process) current(i *Instance) bool { return i.Definition == p.Active && i.Epoch == p.Epoch }

// lost reports whether an instance was on a lost cell.
func (p Process) lost(i *Instance) bool { return i.OnCell() && p.Lost[i.Cell] }

// runs reports whether any desired instance runs a definition.
func (p Process) runs(definition string) bool {
	for i := range p.Instances {
		if in := p.Slots[i].Instance; in != nil && in.State == Running && in.Definition == definition && in.Epoch == p.Epoch && !p.lost(in) {
			return true
		}
	}
	return false
}

// failed reports whether the active definition's start timeout has passed without a running
// instance.
func (p Process) failed(now time.Time) bool {
	if p.Healthy == "" || p.Healthy == p.Active || p.runs(p.Active) {
		return false
	}
	timeout := p.Timeouts[p.Active]
	// A nil map stays at 0, so that an unread process falls back at once and gets read.
	if timeout <= 0 && p.Timeouts != nil {
		timeout = DefaultStartTimeout
	}
	for i := range p.Instances {
		// The time counts from the request of the instance, so a crash does not restart it.
		if in := p.Slots[i].Instance; in != nil && p.current(in) && !now.Before(in.Wanted.Add(timeout)) {
			return true
		}
	}
	return false
}

// underWay reports whether any desired instance is not running, or still has a predecessor. The
// next instance with an old definition must wait until then.
func (p Process) underWay() bool {
	for i := range p.Instances {
		s := p.Slots[i]
		if in := s.Instance; in == nil || in.State != Running || in.Retire || p.lost(in) || s.Evacuating != nil {
			return true
		}
	}
	return false
}

// desired returns the next state of a slot that must have an instance.
func (p Process) desired(s Slot, now time.Time, underWay bool) (Slot, Op) {
	var op Op
	if s.Evacuating != nil && p.lost(s.Evacuating) {
		s.Evacuating, op = nil, Clear
	}
	in := s.Instance
	switch {
	case in == nil || p.lost(in) || !p.current(in) && in.State != Running && !in.Retire:
		// An instance that does not run yet is replaced at once: no capacity is lost.
		s.Instance, op = wanted(p.Active, p.Epoch, now), Place
	case in.Retire: // its cell will stop it
	case in.State == Crashed && !now.Before(in.Since.Add(pause(in.Crashes))):
		// A copy: Action.Was must keep the old state.
		next := *in
		next.State, next.Since = Unclaimed, now
		s.Instance, op = &next, Restart
	case in.State == Running && s.Evacuating != nil && !s.Evacuating.Retire:
		// The successor runs, so the predecessor may stop.
		s.Evacuating, op = retired(s.Evacuating), Retire
	case in.State == Running && s.Evacuating == nil && !p.current(in) && !underWay:
		// The old instance runs on in the evacuating place until its successor runs.
		s.Instance, s.Evacuating, op = wanted(p.Active, p.Epoch, now), in, Replace
	}
	return s, op
}

// surplus returns the next state of a slot that must be empty.
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
		return s, "" // its cells will stop them
	default:
		return s, Retire
	}
}

// unnamed returns the former definitions that nothing refers to.
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

// pause returns the wait before a restart, after that many crashes in a row. It is 0 for the first
// three, then 30 seconds, and doubles up to 15 minutes.
func pause(crashes int32) time.Duration {
	const first, longest = 30 * time.Second, 15 * time.Minute
	if crashes <= 3 {
		return 0
	}
	return min(first<<min(crashes-4, 10), longest)
}
