// Package explore visits all states that the machine of upgradestate can reach. It adds a model of
// the databases and of processes that pause at the wrong moment. It checks the guarantees of
// upgradestate in each state. The tests of upgradestate and the state diagram use it.
//
// A state is the record plus the world: the name and mark of every collection, the tokens that
// processes may still hold, and the commands that drivers may still send. A token is a name under
// which a process may read or write. A mark is a fence that keeps the name. States that differ only
// in counters count as one, so the walk ends without a bound on attempts or flips.
//
// The package does not model time, nor how an operation is executed. A database that breaks the
// contract of package record is out of scope.
//
// Begin with Run in this file, then steps.go (what can happen), world.go (the model) and rules.go
// (the checks).
package explore

import (
	"errors"
	"fmt"
	"slices"

	us "dbcontroller.dev/upgradestate"
)

// Machine is the machine to explore: the real one, or a mutant with one broken rule.
type Machine struct {
	Apply        func(us.Deployment, us.Event) (us.Deployment, error)
	Actions      func(us.Deployment) []us.Action
	WritePlaces  func(us.Deployment) (string, []us.Place)
	ReadPlaces   func(us.Deployment, string) map[string][]us.Place
	EnginePlaces func(us.Deployment, string) map[string][]us.Place
	ApplyAllowed func(us.Deployment) bool
	Loads        func(us.Deployment, string) bool
	Validate     func(us.Deployment) error
}

// Real returns the real machine.
func Real() Machine {
	return Machine{
		Apply: us.Apply, Actions: us.Actions, WritePlaces: us.WritePlaces, ReadPlaces: us.ReadPlaces,
		EnginePlaces: us.EnginePlaces, ApplyAllowed: us.ApplyAllowed, Loads: us.Loads, Validate: us.Validate,
	}
}

// Config selects the scope of an exploration. Kinds are the kinds of the first version. The second
// version has the same kinds, the fixed-name ones hidden.
type Config struct {
	Kinds  []us.Kind
	Shards int
	// Life adds operators' requests: pause, hold, rollback to a snapshot, data updates and
	// retirement.
	Life bool
	// Retries is Policy.Retries of the upgrades; 0: no bound.
	Retries int
	// Hashes lets controllers with two transformations announce theirs in any order.
	Hashes bool
	// Loaders lets controllers load targets without guards, and fence loaders, at any time.
	Loaders bool
	// Replaces lets applications replace the collections of fixed-name kinds at any time.
	Replaces bool
	// Restores lets the database of the version that is not current be restored from a backup at
	// any time. It also lets controllers rebuild that version, with or without a restore.
	Restores bool
	// Undecided lets controllers find the current version restored, and operators decide about it.
	Undecided bool
}

// Edge is one step: an applied event, or a command that reached a database.
type Edge struct {
	From, To int
	Event    us.Event // nil for a command
	Driver   bool     // drivers make this step without any request
	Fence    bool     // a fence command, which the database may hold up forever

	step int // index in the steps of From
}

// Graph is the result of an exploration. Node 0 is the start.
type Graph struct {
	Records []us.Deployment
	Edges   []Edge
	Flips   int // edges that are flips
	Aborts  int // edges that begin an abort in SWITCHING

	machine Machine
	worlds  []*world
	parent  []int // for each node the edge by which it was found first
}

// Violation is a broken guarantee, with the steps that lead to it.
type Violation struct {
	Rule  string
	Trace []string
}

func (v *Violation) Error() string {
	s := v.Rule + "\n"
	for i, step := range v.Trace {
		s += fmt.Sprintf("%4d  %s\n", i+1, step)
	}
	return s
}

// Run explores until no new state is found, or until the first violation. The walk is breadth
// first, so that the trace of a violation is a shortest one.
func Run(m Machine, cfg Config) (*Graph, error) {
	d, w, err := start(cfg)
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	// The processes have read the first record before the first step.
	w.observe(m, d)
	g := &Graph{machine: m, Records: []us.Deployment{d}, worlds: []*world{w}, parent: []int{-1}}
	seen := map[string]int{key(d, w): 0}
	// The list grows during the loop. It is the queue of the walk.
	for at := 0; at < len(g.Records); at++ {
		if err := checkState(m, g.Records[at], g.worlds[at]); err != nil {
			return g, g.violation(at, "", err)
		}
		// Apply must not modify its argument. This copy shows whether it did.
		before := us.Clone(g.Records[at])
		for i, s := range steps(m, g.Records[at], g.worlds[at]) {
			next, w, changed, err := s.take(m, g.Records[at], g.worlds[at])
			if err == nil && changed {
				err = checkStep(m, s, before, next, g.worlds[at], w)
			}
			if err != nil {
				// A modified argument spoils the results of later steps, so it is reported first.
				if label := impure(m, before, g.Records[at], g.worlds[at]); label != "" {
					return g, g.violation(at, label, errImpure)
				}
				return g, g.violation(at, s.label(), err)
			}
			if !changed {
				continue
			}
			w.observe(m, next)
			k := key(next, w)
			to, ok := seen[k]
			if !ok {
				to = len(g.Records)
				seen[k] = to
				g.Records = append(g.Records, next)
				g.worlds = append(g.worlds, w)
				g.parent = append(g.parent, len(g.Edges))
			}
			// The step has changed only counters.
			if to == at {
				continue
			}
			g.add(Edge{From: at, To: to, Event: s.event, Driver: s.driver, Fence: s.fence, step: i})
		}
		if label := impure(m, before, g.Records[at], g.worlds[at]); label != "" {
			return g, g.violation(at, label, errImpure)
		}
	}
	// These two need the whole graph.
	if err := g.checkProgress(); err != nil {
		return g, err
	}
	return g, g.checkAborts()
}

var errImpure = errors.New("pure: Apply has modified its argument")

// impure returns the label of the step that modified the record before it, or "". It compares once
// for all steps of a state, which are many, and searches the step only after a difference.
func impure(m Machine, before, after us.Deployment, w *world) string {
	if equal(before, after) {
		return ""
	}
	for _, s := range steps(m, us.Clone(before), w) {
		d := us.Clone(before)
		if _, _, _, _ = s.take(m, d, w); !equal(before, d) {
			return s.label()
		}
	}
	return "looking at the state"
}

// add adds an edge and counts flips and aborts.
func (g *Graph) add(e Edge) {
	g.Edges = append(g.Edges, e)
	switch e.Event.(type) {
	case us.Flip:
		g.Flips++
	case us.Abort:
		// An abort in INITIAL_SYNCING ends at once and does not count.
		if g.Records[e.To].Upgrade != nil {
			g.Aborts++
		}
	}
}

// violation returns a Violation with the trace from the start to a node and a last step.
func (g *Graph) violation(at int, step string, err error) error {
	v := &Violation{Rule: err.Error()}
	if step != "" {
		v.Trace = append(v.Trace, step)
	}
	for g.parent[at] >= 0 {
		e := g.Edges[g.parent[at]]
		v.Trace = append(v.Trace, steps(g.machine, g.Records[e.From], g.worlds[e.From])[e.step].label())
		at = e.From
	}
	slices.Reverse(v.Trace)
	return v
}

// checkProgress checks that from every state drivers alone come to rest. A kill at any point then
// leaves a state from which the system continues by itself.
func (g *Graph) checkProgress() error {
	// Searches backward from the states at rest, over the steps of drivers.
	back := make([][]int, len(g.Records))
	for _, e := range g.Edges {
		if e.Driver {
			back[e.To] = append(back[e.To], e.From)
		}
	}
	live := make([]bool, len(g.Records))
	var queue []int
	for i, d := range g.Records {
		if len(g.machine.Actions(d)) == 0 {
			// A blocked upgrade waits for an operator, which is rest.
			if d.Upgrade != nil && us.SwitchBlocker(d) == "" {
				return g.violation(i, "", fmt.Errorf("progress: an upgrade runs and there is nothing to do"))
			}
			live[i] = true
			queue = append(queue, i)
		}
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, from := range back[at] {
			if !live[from] {
				live[from] = true
				queue = append(queue, from)
			}
		}
	}
	if i := slices.Index(live, false); i >= 0 {
		return g.violation(i, "", fmt.Errorf("progress: drivers alone never come to rest from here"))
	}
	return nil
}

// checkAborts checks that from every state of SWITCHING an abort ends even if no fence command is
// ever answered. Drivers must reach a state with write places from every state of the abort without
// such a command.
func (g *Graph) checkAborts() error {
	// Searches backward from the states with write places, without fence commands.
	back := make([][]int, len(g.Records))
	for _, e := range g.Edges {
		if e.Driver && !e.Fence {
			back[e.To] = append(back[e.To], e.From)
		}
	}
	ends := make([]bool, len(g.Records))
	var queue []int
	for i, d := range g.Records {
		if _, places := g.machine.WritePlaces(d); len(places) > 0 {
			ends[i] = true
			queue = append(queue, i)
		}
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, from := range back[at] {
			// Only through states of the abort: other ways do not count.
			if u := g.Records[from].Upgrade; !ends[from] && u != nil && u.Step == us.StepAbort {
				ends[from] = true
				queue = append(queue, from)
			}
		}
	}
	aborted := make([]bool, len(g.Records))
	for _, e := range g.Edges {
		if _, ok := e.Event.(us.Abort); ok {
			aborted[e.From] = true
		}
	}
	for i, d := range g.Records {
		switch u := d.Upgrade; {
		case u == nil || u.State != us.Switching:
		// The abort waits for a command that may never be answered.
		case u.Step == us.StepAbort && !ends[i]:
			return g.violation(i, "", fmt.Errorf("abort: it does not end while fences hang"))
		case u.Step != us.StepAbort && !aborted[i]:
			return g.violation(i, "", fmt.Errorf("abort: it cannot begin in step %s", u.Step))
		}
	}
	return nil
}

// start returns a deployment with two versions, the first of which is current.
func start(cfg Config) (us.Deployment, *world, error) {
	d := us.New("services/bbs/deployments/test", "v1", cfg.Shards)
	w := &world{colls: map[string]*coll{}, drained: make([]bool, cfg.Shards), life: cfg.Life, retries: cfg.Retries, hashes: cfg.Hashes, loaders: cfg.Loaders, replaces: cfg.Replaces, restores: cfg.Restores, undecided: cfg.Undecided}
	for i, version := range []string{"v1", "v2"} {
		ns := us.Namespace{Version: version, Location: "test/" + version}
		for _, k := range cfg.Kinds {
			k.ID = fmt.Sprintf("id-%d-%s", i+1, k.Kind)
			k.Physical = k.Kind + ".n1"
			// Clients use the current version under its own names. The other one starts hidden.
			if k.Fixed && i == 0 {
				k.Physical = k.Kind
			}
			ns.Kinds = append(ns.Kinds, k)
			w.colls[place(version, k.Kind)] = &coll{name: k.Physical, tokens: map[string]token{}}
		}
		var err error
		if d, err = us.Apply(d, us.AnnounceNamespace{Namespace: ns}); err != nil {
			return d, w, err
		}
	}
	return d, w, nil
}
