package explore

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	us "dbcontroller.dev/upgradestate"
)

// keyer writes the key of a state. Formatting by package fmt took a sixth of an exploration.
type keyer struct{ b []byte }

func (k *keyer) texts(ss ...string) {
	for _, s := range ss {
		// The length keeps neighbours apart.
		k.b = append(strconv.AppendInt(k.b, int64(len(s)), 10), ':')
		k.b = append(k.b, s...)
	}
}

func (k *keyer) numbers(ns ...int) {
	for _, n := range ns {
		k.b = append(strconv.AppendInt(k.b, int64(n), 10), ' ')
	}
}

func (k *keyer) flags(vs ...bool) {
	for _, v := range vs {
		if v {
			k.b = append(k.b, 't')
		} else {
			k.b = append(k.b, 'f')
		}
	}
}

// list writes the length of a list before its elements.
func list[T any](k *keyer, list []T, write func(...T)) {
	k.numbers(len(list))
	write(list...)
}

// key returns equal strings for states that differ only in counters: ids, epochs, attempts, and
// sequence numbers of names, which count by order alone.
func key(d us.Deployment, w *world) string {
	k := &keyer{b: make([]byte, 0, 512)}
	k.texts(d.CurrentVersion)
	k.flags(w.drained...)
	k.flags(d.LastSwitch != nil, w.restored, d.Upgrade != nil)
	k.numbers(len(d.Restored))
	if u := d.Upgrade; u != nil {
		k.texts(u.TargetVersion, string(u.State), string(u.Step))
		list(k, u.ReadyShards, k.numbers)
		k.flags(u.Again, u.Attempt > 1)
		// Without a bound the number of failures has no effect.
		if u.Policy.Retries > 0 {
			k.numbers(u.Failures)
		}
	}
	if w.life {
		k.life(d)
	}
	if w.loaders {
		for _, ns := range d.Namespaces {
			k.flags(us.Loads(d, ns.Version))
		}
	}
	if w.hashes {
		k.numbers(len(d.Available))
		for _, a := range d.Available {
			k.texts(a.TargetVersion, a.TransformHash)
			k.flags(a.Precopied)
		}
		if u := d.Upgrade; u != nil {
			k.texts(u.TransformHash)
		}
		for _, ns := range d.Namespaces {
			m, ok := us.ImagesOf(d, ns.Version)
			k.flags(ok && m.TransformHash != "")
			k.texts(m.TransformHash)
		}
	}
	for _, ns := range d.Namespaces {
		for _, kind := range ns.Kinds {
			k.collection(kind, w.colls[place(ns.Version, kind.Kind)])
		}
	}
	return string(k.b)
}

// life writes the fields that Config.Life changes.
func (k *keyer) life(d us.Deployment) {
	k.flags(d.Pace.Paused, d.Retire != nil, d.Update != nil)
	list(k, d.Retired, k.texts)
	if d.Retire != nil {
		k.texts(d.Retire.Until)
	}
	k.numbers(len(d.Kept))
	for _, kept := range d.Kept {
		k.texts(kept.Until)
	}
	if u := d.Upgrade; u != nil {
		k.flags(u.Policy.Hold, u.SwitchAsked, u.Snapshot)
	}
	if d.Update != nil {
		list(k, d.Update.Done, k.numbers)
	}
	if last := d.LastSwitch; last != nil {
		k.texts(last.From)
		k.flags(last.Back, last.Snapshot, last.Outdated)
	}
}

// collection writes a kind and its collection. The order of names matters, their numbers do not.
func (k *keyer) collection(kind us.Kind, c *coll) {
	names := append(make([]string, 0, 16), kind.Physical, kind.Fenced, c.name, c.mark)
	if kind.Pending != nil {
		names = append(names, kind.Pending.From, kind.Pending.To)
	}
	for _, a := range c.commands {
		names = append(names, a.from, a.to)
	}
	names = append(names, c.closed...)
	ranks := ranksOf(kind.Kind, names)
	k.texts(kind.Kind)
	k.flags(kind.Hidden, kind.Sealed, kind.Pending != nil)
	if p := kind.Pending; p != nil {
		k.texts(string(p.Reason))
	}
	k.numbers(len(c.commands), len(c.closed), len(c.tokens))
	for _, a := range c.commands {
		k.texts(a.class)
		k.flags(a.unfence, a.prevent, a.done)
	}
	// The lengths above say which name stands for what.
	for _, name := range names {
		k.name(ranks, kind.Kind, name)
	}
	// The order of a map must not tell equal states apart.
	tokens := make([]string, 0, 8)
	for name := range c.tokens {
		tokens = append(tokens, name)
	}
	slices.SortFunc(tokens, func(a, b string) int { return compareNames(kind.Kind, a, b) })
	for _, name := range tokens {
		t := c.tokens[name]
		k.name(ranks, kind.Kind, name)
		k.flags(t.write, t.read, t.apply, t.load, t.void)
		k.texts(t.by)
	}
}

// ranksOf returns the sequence numbers among names, in order.
func ranksOf(kind string, names []string) []int {
	seqs := make([]int, 0, 16)
	for _, n := range names {
		if s, ok := seqOf(kind, n); ok {
			seqs = append(seqs, s)
		}
	}
	slices.Sort(seqs)
	return slices.Compact(seqs)
}

// name writes a name with its rank in place of its sequence number.
func (k *keyer) name(ranks []int, kind, name string) {
	if s, ok := seqOf(kind, name); ok {
		k.numbers(slices.Index(ranks, s))
		return
	}
	k.b = append(k.b, '\'')
	k.texts(name)
}

// compareNames orders names by their sequence numbers, and others before them.
func compareNames(kind, a, b string) int {
	x, numberedA := seqOf(kind, a)
	y, numberedB := seqOf(kind, b)
	if numberedA && numberedB {
		return cmp.Compare(x, y)
	}
	return cmp.Or(compareBools(numberedA, numberedB), cmp.Compare(a, b))
}

func seqOf(kind, name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, kind)
	if !ok {
		return 0, false
	}
	digits, ok := strings.CutPrefix(rest, ".n")
	if !ok {
		return 0, false
	}
	s, err := strconv.Atoi(digits)
	return s, err == nil
}
