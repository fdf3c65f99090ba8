package explore

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	us "dbcontroller/upgradestate"
)

// world is what is true at the databases, as opposed to what the record says, and what
// sleeping processes may still remember.
type world struct {
	colls   map[string]*coll // by version/kind
	drained []bool           // by shard: a report that truly saw the fences in force was accepted
	ids     int              // upgrade ids given out
	life    bool             // people use every verb
}

// coll is one collection.
type coll struct {
	name   string
	mark   string
	tokens map[string]token // by name: what has been published for it at any time
	acts   []act            // announced acts that some driver may still send, however late
}

// token says what somebody may hold for a name.
type token struct{ write, read, apply bool }

// act is a command to the database as a driver decided it.
type act struct {
	class    string
	from, to string
	lift     bool
}

// marks reports an act that keeps the collection's name.
func (a act) marks() bool { return a.class == "validator" || a.class == "writeBlock" }

// do is the database's answer to an act. A rename finds its collection under the old
// name only, and a lift what it ends; that is asked of every backend.
func (c *coll) do(a act) {
	switch {
	case a.lift && a.marks():
		if c.mark == a.from {
			c.mark = ""
		}
	case a.marks():
		c.mark = a.to
	default:
		if c.name == a.from {
			c.name = a.to
		}
	}
}

// done reports whether the act can be confirmed.
func (c *coll) done(a act) bool {
	switch {
	case a.lift && a.marks():
		return c.mark != a.from
	case a.marks():
		return c.mark == a.to
	default:
		return c.name == a.to
	}
}

// byMark reports whether the kind keeps its name through a fence. Such classes let pass
// what their documentation says; rules that need a new name do not apply to them.
func byMark(k us.Kind) bool { return k.Fence == "validator" || k.Fence == "writeBlock" }

// writable reports whether a client could write at the database itself: it bears a name
// for which somebody may hold a token or, for an application, the name that it knows.
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
	out := &world{colls: make(map[string]*coll, len(w.colls)), drained: slices.Clone(w.drained), ids: w.ids, life: w.life}
	for p, c := range w.colls {
		d := &coll{name: c.name, mark: c.mark, acts: slices.Clone(c.acts), tokens: make(map[string]token, len(c.tokens))}
		for n, t := range c.tokens {
			d.tokens[n] = t
		}
		out.colls[p] = d
	}
	return out
}

// observe records what the processes learn from a record: tokens and acts. It forgets
// what can matter no more, so that the exploration ends.
func (w *world) observe(m Machine, d us.Deployment) {
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
					w.publish(ns.Version, p, func(t *token) { t.apply = true })
				}
			}
		}
	}
	pending := map[string][]act{}
	for _, a := range m.Actions(d) {
		version, kind, x, ok := actOf(a)
		if !ok {
			continue
		}
		at := place(version, kind)
		pending[at] = append(pending[at], x)
		if c := w.colls[at]; !slices.Contains(c.acts, x) {
			c.acts = append(c.acts, x)
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

// forget drops acts without effect and tokens of names that cannot come back. A rename
// away from an application's own name and a mark are commands that a database cannot
// refuse when they come late, so a repetition of one after its confirmation is not
// modelled; see "late repetitions" in the package comment of upgradestate.
func (c *coll) forget(k us.Kind, pending []act) {
	c.acts = slices.DeleteFunc(c.acts, func(a act) bool {
		if slices.Contains(pending, a) {
			return false
		}
		switch {
		case a.lift:
			return a.from != c.name && a.from != c.mark
		case a.marks(), a.from == k.Kind:
			return true
		default:
			return a.from != c.name
		}
	})
	slices.SortFunc(c.acts, func(a, b act) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	alive := []string{c.name, k.Physical, k.Kind}
	if k.Pending != nil {
		alive = append(alive, k.Pending.To)
	}
	for _, a := range c.acts {
		alive = append(alive, a.to)
	}
	for n := range c.tokens {
		if !slices.Contains(alive, n) {
			delete(c.tokens, n)
		}
	}
}

// actOf is the command that an action asks for.
func actOf(a us.Action) (version, kind string, x act, ok bool) {
	switch a := a.(type) {
	case us.Perform:
		return a.Version, a.Place.Kind, act{class: a.Class, from: a.Pending.From, to: a.Pending.To}, true
	case us.Lift:
		return a.Version, a.Place.Kind, act{class: a.Class, from: a.From, to: a.To, lift: true}, true
	default:
		return "", "", act{}, false
	}
}

// key is equal for states that differ only in counters: ids, epochs, attempts and the
// sequence numbers of names, of which only the order counts.
func key(d us.Deployment, w *world) string {
	var b strings.Builder
	fmt.Fprint(&b, d.CurrentVersion, w.drained, d.LastSwitch != nil)
	if u := d.Upgrade; u != nil {
		fmt.Fprint(&b, u.TargetVersion, u.State, u.Step, u.ReadyShards)
	}
	if w.life {
		b.WriteString(lifeKey(d))
	}
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			c := w.colls[place(ns.Version, k.Kind)]
			names := []string{k.Physical, k.Fenced, c.name, c.mark}
			if k.Pending != nil {
				names = append(names, k.Pending.From, k.Pending.To)
			}
			for _, a := range c.acts {
				names = append(names, a.from, a.to)
			}
			rank := ranks(k.Kind, names)
			fmt.Fprintf(&b, "|%s:%s %s %t %t", k.Kind, rank(k.Physical), rank(k.Fenced), k.Hidden, k.Sealed)
			if p := k.Pending; p != nil {
				fmt.Fprintf(&b, " %s %s>%s", p.Reason, rank(p.From), rank(p.To))
			}
			fmt.Fprintf(&b, " @%s %s", rank(c.name), rank(c.mark))
			for _, a := range c.acts {
				fmt.Fprintf(&b, " %s %t %s>%s", a.class, a.lift, rank(a.from), rank(a.to))
			}
			var ts []string
			for n, t := range c.tokens {
				ts = append(ts, fmt.Sprint(rank(n), t))
			}
			slices.Sort(ts)
			fmt.Fprint(&b, ts)
		}
	}
	return b.String()
}

// ranks renumbers the names of a kind in their order.
func ranks(kind string, names []string) func(string) string {
	var seqs []int
	for _, n := range names {
		if s, ok := seqOf(kind, n); ok {
			seqs = append(seqs, s)
		}
	}
	slices.Sort(seqs)
	seqs = slices.Compact(seqs)
	return func(n string) string {
		s, ok := seqOf(kind, n)
		if !ok {
			return "'" + n + "'"
		}
		return strconv.Itoa(slices.Index(seqs, s))
	}
}

func seqOf(kind, name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, kind+".n")
	if !ok {
		return 0, false
	}
	s, err := strconv.Atoi(digits)
	return s, err == nil
}
