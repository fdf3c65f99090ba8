package converge

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Key names a slot of a process: one index of one definition.
type Key struct {
	Definition string
	Index      int
}

// Process is a process with the state of all its instances.
type Process struct {
	Instances int    // desired number; 0 for a deleted process
	Epoch     string // of this creation of the process; a recreated one has another
	Active    string // id of the definition to run
	Healthy   string // id of the last one that was proven by running; empty if none was
	Former    []string
	// Single means that the data hold the active definition only. No other definition can start, and
	// the process records no healthy one: a definition counts as proven while an instance of it runs.
	Single bool
	// RolloutTimeout is the time that a proven definition has to run at an index, before the rollout
	// gives it up there. 0 means DefaultRolloutTimeout.
	RolloutTimeout time.Duration
	// FallBackAfter is the time after which a definition that runs nowhere gives way to the healthy
	// one. 0 means never: its instance is tried for ever.
	FallBackAfter time.Duration
	Slots         map[Key]Slot
	Lost          map[string]bool // cells that stopped reporting
}

// DefaultRolloutTimeout applies to a process without a timeout of its own.
const DefaultRolloutTimeout = time.Minute

// Op is the kind of an Action.
type Op string

// The operations.
const (
	Place    Op = "place"     // puts an instance where none runs
	Replace  Op = "replace"   // starts the active definition beside an instance that runs until then
	Restart  Op = "restart"   // makes a crashed instance unclaimed again
	GiveUp   Op = "give up"   // stops the attempts to run the active definition at an index
	Retire   Op = "retire"    // asks a cell to stop an instance
	Clear    Op = "clear"     // drops a lost instance
	Delete   Op = "delete"    // deletes a slot
	Heal     Op = "heal"      // marks Definition as the healthy one
	FallBack Op = "fall back" // makes Definition the active one again
	Prune    Op = "prune"     // deletes Definitions
)

// Action is one change. Heal, FallBack and Prune change the process, all others the slot of Key.
type Action struct {
	Op          Op
	Key         Key
	Was, Slot   Slot // the state decided on, and the new state
	Definition  string
	Definitions []string
}

// Decide returns the next actions for a process. It returns none if the process is as desired.
func Decide(p Process, now time.Time) []Action {
	if p.failed(now) {
		return []Action{{Op: FallBack, Definition: p.Healthy}} // all other actions depend on this one
	}
	var out []Action
	was := p
	if id := p.proved(); id != "" {
		out = append(out, Action{Op: Heal, Definition: id})
		p.Healthy = id
	}
	next := p.next(now)
	keys := slices.Collect(maps.Keys(p.Slots))
	for i := range p.Instances {
		// The slots of these definitions may have to be created.
		keys = append(keys, Key{p.Active, i}, Key{p.base(), i})
	}
	slices.SortFunc(keys, func(a, b Key) int {
		if a.Index != b.Index {
			return a.Index - b.Index
		}
		return strings.Compare(a.Definition, b.Definition)
	})
	for _, k := range slices.Compact(keys) {
		before, exists := p.Slots[k]
		s, op := p.desired(k, before, now, k.Index == next)
		// A slot without an instance has no record, unless one is placed right now.
		if s == (Slot{}) {
			op = Delete
			if !exists {
				continue
			}
		}
		if op != "" {
			out = append(out, Action{Op: op, Key: k, Was: before, Slot: s})
		}
	}
	// Of the state before Heal: the caller may fail to apply that.
	if ids := was.unnamed(); len(ids) > 0 {
		out = append(out, Action{Op: Prune, Definitions: ids})
	}
	return out
}

// base returns the definition of instances that start outside of the rollout, after a crash for
// example: the healthy one, because the active one may never run.
func (p Process) base() string {
	if p.Healthy != "" {
		return p.Healthy
	}
	return p.Active
}

// desired returns the next state of a slot. roll means that the rollout reaches its index.
func (p Process) desired(k Key, s Slot, now time.Time, roll bool) (Slot, Op) {
	op := p.drop(&s)
	runner := p.runner(k.Index)
	starts := runner == "" && k.Definition == p.base()
	wants := k.Index >= 0 && k.Index < p.Instances
	stays := wants && (starts || k.Definition == runner || k.Definition == p.Active)
	// Once a successor runs, an evacuated instance may stop. Their definitions do not matter.
	if retire := s.retire(!stays, !wants || runner != ""); retire != "" {
		op = retire
	}
	if !stays {
		return s, op
	}
	in := s.Instance
	switch {
	case in == nil && starts:
		s.Instance, op = wanted(p.Epoch, now), Place
	case in == nil && roll && k.Definition == p.Active:
		s.Instance, op = wanted(p.Epoch, now), Replace
	case in == nil, in.Retire: // nothing to start, or its cell will stop it first
	case in.GivenUp && starts:
		// Nothing else runs here any longer, so it is tried again.
		s.Instance, op = wanted(p.Epoch, now), Place
	case in.GivenUp && !p.proven():
		s.Instance, op = nil, Retire // the rollout starts over
	case in.GivenUp: // until another definition becomes active
	case k.Definition != runner && !starts && p.proven() && p.late(in, now):
		s.Instance, op = in.givenUp(now), GiveUp
	case in.State == Crashed && !now.Before(in.Since.Add(pause(in.Crashes))):
		// A copy: Action.Was must keep the old state.
		again := *in
		again.State, again.Since = Unclaimed, now
		s.Instance, op = &again, Restart
	}
	return s, op
}

// drop removes the instances of lost cells from a slot, and retires those of a process that was
// deleted and recreated since.
func (p Process) drop(s *Slot) (op Op) {
	for _, in := range []**Instance{&s.Instance, &s.Evacuating} {
		switch {
		case *in == nil:
		case p.lost(*in):
			if *in, op = (*in).stopped(), Clear; *in != nil && (*in).Epoch != p.Epoch {
				*in = nil
			}
		case (*in).Epoch != p.Epoch && (!(*in).OnCell() || !(*in).Retire):
			*in, op = retired(*in), Retire
		}
	}
	return op
}

// next returns the index where the rollout starts the active definition next, or -1. It goes on only
// while nothing else is under way, so that the process keeps its capacity.
func (p Process) next(now time.Time) int {
	next := -1
	for i := range p.Instances {
		candidate := p.Slots[Key{p.Active, i}].Instance
		runner := p.runner(i)
		// Until it is proven, the definition starts at one index only. It does not count where it is
		// all that there is.
		tried := candidate != nil && (runner != "" || p.base() != p.Active)
		if tried && !p.proven() || p.busy(i, now) {
			return -1
		}
		if next < 0 && candidate == nil && runner != p.Active {
			next = i
		}
	}
	return next
}

// busy reports whether the rollout must wait for an index: an instance is starting or stopping there.
// It does not wait for ever for one that does not start.
func (p Process) busy(i int, now time.Time) bool {
	runner := p.runner(i)
	if runner == "" {
		in := p.Slots[Key{p.base(), i}].Instance
		return in == nil || !p.late(in, now)
	}
	for k, s := range p.Slots {
		if k.Index != i {
			continue
		}
		in := s.Instance
		starts := in != nil && k.Definition == p.Active && in.State != Running && !in.GivenUp
		stops := in != nil && k.Definition != runner && in.OnCell()
		if starts || stops || s.Evacuating != nil {
			return true
		}
	}
	return false
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
