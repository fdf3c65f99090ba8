// Package explore walks all states that the machine of upgradestate can reach, together
// with a model of the databases and of processes that sleep at the wrong moment, and
// checks the guarantees in each. The tests of upgradestate and the state diagram use it.
//
// A state is the record plus the world: the name and mark of every collection, the
// tokens that anybody may still hold, the commands that any driver may still send.
// Counters are normalised, so the walk ends without a bound on attempts or flips.
//
// It does not model time, nor how an operation is done; a database that does not do what
// package record asks of it is outside.
package explore

import (
	"errors"
	"fmt"
	"slices"

	us "dbcontroller.dev/upgradestate"
)

// Machine is the machine to explore: the real one, or one with a rule broken.
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

// Real is the machine as it is.
func Real() Machine {
	return Machine{
		Apply: us.Apply, Actions: us.Actions, WritePlaces: us.WritePlaces, ReadPlaces: us.ReadPlaces,
		EnginePlaces: us.EnginePlaces, ApplyAllowed: us.ApplyAllowed, Loads: us.Loads, Validate: us.Validate,
	}
}

// Config says what to explore. Kinds are those of the first version; the second has the
// same, the fixed ones hidden.
type Config struct {
	Kinds  []us.Kind
	Shards int
	// Life has people pause, hold, go back to snapshots, update data in place and retire
	// versions as well.
	Life bool
	// Retries is the policy of the upgrades that are begun; 0: no bound.
	Retries int
	// Hashes has controllers of two transformations announce theirs, in any order.
	Hashes bool
	// Loaders has targets loaded without guards, and loaders fenced, at any time.
	Loaders bool
	// Replaces has applications replace the collections of fixed-name kinds, at any time.
	Replaces bool
	// Restores has the database of the version that is not current restored from a backup, at
	// any time, and what is known about it made void, also without that.
	Restores bool
	// Undecided has the version that is served found restored, and persons decide what counts.
	Undecided bool
}

// Edge is one step: an event that was applied, or a command that reached a database.
type Edge struct {
	From, To int
	Event    us.Event // nil for a command
	Label    string
	Driver   bool // a driver alone makes this step, with nobody asking for it
	Fence    bool // a fence's command at a database, which may hold it up for ever
}

// Graph is what was found. Node 0 is the start.
type Graph struct {
	Records []us.Deployment
	Edges   []Edge
	Flips   int // edges that are flips
	Aborts  int // edges that begin an abort in SWITCHING

	machine Machine
	worlds  []*world
	parent  []int // edge by which a node was found first
}

// Violation is a guarantee that does not hold, with the steps that lead there.
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

// Run explores until nothing new is found, or until the first violation, which is then
// the shortest to be found.
func Run(m Machine, cfg Config) (*Graph, error) {
	d, w, err := start(cfg)
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	w.observe(m, d)
	g := &Graph{machine: m, Records: []us.Deployment{d}, worlds: []*world{w}, parent: []int{-1}}
	seen := map[string]int{key(d, w): 0}
	for at := 0; at < len(g.Records); at++ {
		if err := checkState(m, g.Records[at], g.worlds[at]); err != nil {
			return g, g.violation(at, "", err)
		}
		before := us.Clone(g.Records[at])
		for _, s := range steps(m, g.Records[at], g.worlds[at]) {
			next, w, changed, err := s.take(m, g.Records[at], g.worlds[at])
			if err == nil && changed {
				err = checkStep(m, s, before, next, g.worlds[at], w)
			}
			if err != nil {
				if label := impure(m, before, g.Records[at], g.worlds[at]); label != "" { // what follows from it
					return g, g.violation(at, label, errImpure)
				}
				return g, g.violation(at, s.label, err)
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
			if to == at {
				continue
			}
			g.add(Edge{From: at, To: to, Event: s.event, Label: s.label, Driver: s.driver, Fence: s.fence})
		}
		if label := impure(m, before, g.Records[at], g.worlds[at]); label != "" {
			return g, g.violation(at, label, errImpure)
		}
	}
	if err := g.checkProgress(); err != nil {
		return g, err
	}
	return g, g.checkAborts()
}

var errImpure = errors.New("pure: Apply has modified its argument")

// impure names the step that has modified the record that it was taken at; "" if none has.
// It compares once for all steps of a state, which are many, and looks for the step only
// when there is one.
func impure(m Machine, before, after us.Deployment, w *world) string {
	if equal(before, after) {
		return ""
	}
	for _, s := range steps(m, us.Clone(before), w) {
		d := us.Clone(before)
		if _, _, _, _ = s.take(m, d, w); !equal(before, d) {
			return s.label
		}
	}
	return "looking at the state"
}

func (g *Graph) add(e Edge) {
	g.Edges = append(g.Edges, e)
	switch e.Event.(type) {
	case us.Flip:
		g.Flips++
	case us.Abort:
		if g.Records[e.To].Upgrade != nil {
			g.Aborts++
		}
	}
}

func (g *Graph) violation(at int, step string, err error) error {
	v := &Violation{Rule: err.Error()}
	if step != "" {
		v.Trace = append(v.Trace, step)
	}
	for g.parent[at] >= 0 {
		e := g.Edges[g.parent[at]]
		v.Trace = append(v.Trace, e.Label)
		at = e.From
	}
	slices.Reverse(v.Trace)
	return v
}

// checkProgress demands that from every state drivers alone come to rest: a kill at any
// point leaves a state from which the system goes on by itself.
func (g *Graph) checkProgress() error {
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

// checkAborts demands that from every state of SWITCHING an abort ends, though no fence's
// command is ever answered again: drivers alone, without such a command, come from
// wherever the abort begins to where writes are possible.
func (g *Graph) checkAborts() error {
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
		case u.Step == us.StepAbort && !ends[i]:
			return g.violation(i, "", fmt.Errorf("abort: it does not end while fences hang"))
		case u.Step != us.StepAbort && !aborted[i]:
			return g.violation(i, "", fmt.Errorf("abort: it cannot begin in step %s", u.Step))
		}
	}
	return nil
}

// start is a deployment with two versions, the first of which is current.
func start(cfg Config) (us.Deployment, *world, error) {
	d := us.New("services/bbs/deployments/test", "v1", cfg.Shards)
	w := &world{colls: map[string]*coll{}, drained: make([]bool, cfg.Shards), life: cfg.Life, retries: cfg.Retries, hashes: cfg.Hashes, loaders: cfg.Loaders, replaces: cfg.Replaces, restores: cfg.Restores, undecided: cfg.Undecided}
	for i, version := range []string{"v1", "v2"} {
		ns := us.Namespace{Version: version, Location: "test/" + version}
		for _, k := range cfg.Kinds {
			k.ID = fmt.Sprintf("id-%d-%s", i+1, k.Kind)
			k.Physical = k.Kind + ".n1"
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
