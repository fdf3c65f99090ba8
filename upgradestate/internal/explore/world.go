package explore

import (
	"cmp"
	"slices"
	"strings"

	us "dbcontroller.dev/upgradestate"
)

// world is the true state of the databases, which the record may not show, and the knowledge of
// paused processes.
type world struct {
	colls   map[string]*coll // by version/kind
	drained []bool           // by shard: a report that has seen the fences in force was accepted
	ids     int              // upgrade ids used
	life    bool             // Config.Life
	retries int              // Config.Retries
	hashes  bool             // Config.Hashes
	loaders bool             // Config.Loaders

	replaces  bool // Config.Replaces
	restores  bool // Config.Restores
	undecided bool // Config.Undecided
	restored  bool // a database was restored, and the renames that follow are not all confirmed
}

// coll is one collection.
type coll struct {
	name     string
	mark     string
	tokens   map[string]token // all tokens published for it, by name
	commands []command        // announced operations that a driver may still send, however late
	closed   []string         // names that no rename can give it any more
}

// token is the knowledge of processes about a name.
type token struct {
	write, read, apply bool
	load               bool   // may insert without guards
	by                 string // transformations of the controllers that may apply with it
	void               bool   // a controller from before a rebuild holds it
}

// command is a command to the database as a driver decided it.
type command struct {
	class    string
	from, to string
	unfence  bool
	prevent  bool // makes the rename from from to to impossible
	done     bool // reached the database once
}

// marks reports whether the operation keeps the collection's name.
func (a command) marks() bool { return a.class == "validator" || a.class == "writeBlock" }

// do is the database's response to a command. A rename finds its collection under the old name
// only, and an unfence ends only its From. Every backend must behave like this.
func (c *coll) do(a command) {
	if i := slices.Index(c.commands, a); i >= 0 {
		c.commands[i].done = true
	}
	switch {
	case a.prevent:
		// A rename that has happened cannot be prevented any more.
		if c.name != a.to {
			c.closed = append(c.closed, a.to)
		}
	case a.unfence && a.marks():
		if c.mark == a.from {
			c.mark = ""
		}
	case a.marks():
		c.mark = a.to
	// The destination is taken, so the rename fails.
	case slices.Contains(c.closed, a.to):
	default:
		if a.unfence {
			c.closed = append(c.closed, a.from) // a fence after its unfence does nothing
		}
		if c.name == a.from {
			c.name = a.to
		}
	}
}

// done reports whether the operation can be confirmed.
func (c *coll) done(a command) bool {
	switch {
	case a.prevent:
		return slices.Contains(c.closed, a.to)
	case a.unfence && a.marks():
		return c.mark != a.from
	case a.marks():
		return c.mark == a.to
	case a.unfence:
		return c.name == a.to && slices.Contains(c.closed, a.from)
	default:
		return c.name == a.to
	}
}

// byMark reports whether the class keeps the collection's name. Such a class lets some operations
// pass, as its documentation states. Rules that need a new name do not apply to it.
func byMark(k us.Kind) bool { return k.Fence == "validator" || k.Fence == "writeBlock" }

// writable reports whether the database would accept a client's write: the collection has a name
// for which a process may hold a token, or the name that its application uses.
func (c *coll) writable(k us.Kind) bool {
	if c.mark != "" {
		return false
	}
	if k.Fixed {
		return c.name == k.Kind
	}
	return c.tokens[c.name].write
}

func place(version, kind string) string { return version + "/" + kind }

func (w *world) clone() *world {
	out := &world{colls: make(map[string]*coll, len(w.colls)), drained: slices.Clone(w.drained), ids: w.ids, life: w.life, retries: w.retries, hashes: w.hashes, loaders: w.loaders, replaces: w.replaces, restores: w.restores, restored: w.restored, undecided: w.undecided}
	for p, c := range w.colls {
		d := &coll{name: c.name, mark: c.mark, commands: slices.Clone(c.commands), closed: slices.Clone(c.closed), tokens: make(map[string]token, len(c.tokens))}
		for n, t := range c.tokens {
			d.tokens[n] = t
		}
		out.colls[p] = d
	}
	return out
}

// observe records the knowledge that processes get from a record: tokens and commands. It drops
// knowledge without effect, so that the exploration ends.
func (w *world) observe(m Machine, d us.Deployment) {
	// A paused process may keep a published token for any time.
	_, places := m.WritePlaces(d)
	for _, p := range places {
		w.publish(d.CurrentVersion, p, func(t *token) { t.write = true })
	}
	for _, ns := range d.Namespaces {
		for _, ps := range m.ReadPlaces(d, ns.Version) {
			for _, p := range ps {
				w.publish(ns.Version, p, func(t *token) { t.read = true })
			}
		}
		if ns.Version != d.CurrentVersion && m.ApplyAllowed(d) {
			for _, ps := range m.EnginePlaces(d, ns.Version) {
				for _, p := range ps {
					w.publish(ns.Version, p, func(t *token) {
						t.apply, t.load = true, t.load || w.loaders && m.Loads(d, ns.Version)
						// The name may be known to controllers with several transformations in
						// turn.
						if a, ok := us.Followed(d); ok && w.hashes && a.TargetVersion == ns.Version && !strings.Contains(t.by, a.TransformHash) {
							t.by += a.TransformHash
						}
					})
				}
			}
		}
	}
	pending := map[string][]command{}
	for _, a := range m.Actions(d) {
		version, kind, x, ok := commandOf(a)
		if !ok {
			continue
		}
		at := place(version, kind)
		pending[at] = append(pending[at], x)
		c := w.colls[at]
		// The action is level-triggered and returns in each record until it is confirmed.
		if !slices.ContainsFunc(c.commands, x.same) {
			c.commands = append(c.commands, x)
		}
	}
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			at := place(ns.Version, k.Kind)
			w.colls[at].forget(k, pending[at])
		}
	}
}

func (w *world) publish(version string, p us.Place, set func(*token)) {
	c := w.colls[place(version, p.Kind)]
	t := c.tokens[p.Name]
	set(&t)
	c.tokens[p.Name] = t
}

// same reports whether two operations are the same command, sent or not.
func (a command) same(b command) bool {
	a.done, b.done = false, false
	return a == b
}

// compare orders commands.
func (a command) compare(b command) int {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to),
		compareBools(a.unfence, b.unfence), compareBools(a.prevent, b.prevent), compareBools(a.done, b.done))
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// forget drops commands without effect and tokens of names that cannot return. A database cannot
// refuse two commands that come late: a rename away from an application's own name, and a mark. So
// the model has no repetition of them, and no late first arrival of a mark that was given up. See
// "Late operations" in the package comment of upgradestate.
func (c *coll) forget(k us.Kind, pending []command) {
	c.commands = slices.DeleteFunc(c.commands, func(a command) bool {
		// A pending command is still wanted.
		if slices.ContainsFunc(pending, a.same) {
			return false
		}
		switch {
		case a.prevent:
			return a.from != c.name || slices.Contains(c.closed, a.to)
		case a.unfence:
			return a.from != c.name && a.from != c.mark
		case a.marks(), slices.Contains(c.closed, a.to):
			return true
		case a.from == k.Kind:
			return a.done
		default:
			return a.from != c.name
		}
	})
	for i := range c.commands {
		c.commands[i].done = c.commands[i].done && c.commands[i].from == k.Kind // done matters to these only
	}
	slices.SortFunc(c.commands, command.compare)
	// A closed name matters only while a command may still lead to it.
	slices.Sort(c.closed)
	c.closed = slices.DeleteFunc(slices.Compact(c.closed), func(name string) bool {
		return !slices.ContainsFunc(c.commands, func(a command) bool { return a.to == name || a.unfence && a.from == name })
	})
	// Only a name that the collection can have again makes a token dangerous.
	alive := []string{c.name, k.Physical, k.Kind}
	if k.Pending != nil {
		alive = append(alive, k.Pending.To)
	}
	for _, a := range c.commands {
		alive = append(alive, a.to)
	}
	for n := range c.tokens {
		if !slices.Contains(alive, n) {
			delete(c.tokens, n)
		}
	}
}

// commandOf returns the command that an action asks for.
func commandOf(a us.Action) (version, kind string, x command, ok bool) {
	switch a := a.(type) {
	case us.Execute:
		return a.Version, a.Place.Kind, command{class: a.Class, from: a.Pending.From, to: a.Pending.To}, true
	case us.Prevent:
		return a.Version, a.Place.Kind, command{class: a.Class, from: a.Pending.From, to: a.Pending.To, prevent: true}, true
	case us.Unfence:
		return a.Version, a.Place.Kind, command{class: a.Class, from: a.From, to: a.To, unfence: true}, true
	default:
		return "", "", command{}, false
	}
}
