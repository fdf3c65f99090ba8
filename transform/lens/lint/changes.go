package lint

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
)

// Changes reports the changes that lenses make to a sample. Its JSON form is stable.
type Changes struct {
	Sample  []Read   `json:"sample"`
	Groups  int64    `json:"groups"`
	Failed  int64    `json:"failed"` // groups that fail; Run reports the reasons
	Made    []Read   `json:"made"`   // records of the new version, by kind
	Changes []Change `json:"changes"`
	// Pairs holds the first groups before and after.
	Pairs []Pair `json:"-"`
}

// Pair is one group: its records in the old version, and the records that the lens makes of them.
type Pair struct{ Old, New []record.Record }

// Change is one change of a path in the main records of a kind.
type Change struct {
	Change string `json:"change"`         // added, removed, moved, split, computed, type or value
	Kind   string `json:"kind"`           // of the old version; for added, of the new one
	From   string `json:"from,omitempty"` // path; "*" is any list item, "<key>" any of many fields
	To     string `json:"to,omitempty"`
	Types  string `json:"types,omitempty"` // "int to long"
	// Reason explains why a removed field has no counterpart.
	Reason  string        `json:"reason,omitempty"`
	Records int64         `json:"records"`
	Fields  int64         `json:"fields,omitempty"` // number of fields that "<key>" stands for
	Example ChangeExample `json:"example"`
}

// ChangeExample shows the first record with a change: a value before and after.
type ChangeExample struct {
	Name string `json:"name"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// mostChanges limits the number of distinct changes.
const mostChanges = 5000

// Compare reports the changes that subjects make to samples, and keeps the first pairs.
func Compare(ctx context.Context, subjects []Subject, samples []Sample, pairs int, o Options) (*Changes, error) {
	up, _, err := directions(subjects)
	if err != nil {
		return nil, err
	}
	o = o.withDefaults()
	c := comparison{out: &Changes{Changes: []Change{}}, found: map[changeKey]*Change{}, paths: map[changeKey]counterpart{}, made: map[string]int64{}}
	all := sampled{from: up, limit: o.Limit, memory: o.Memory, mains: mainKinds(subjects, oldSide), bad: func(record.Record, error) { c.out.Failed++ }}
	err = all.each(ctx, samples, func(id transform.GroupID, x []record.Record) error {
		c.out.Groups++
		// Without a complement: the report shows the lens's own effect.
		y, err := run(up, id, x, nil)
		if err != nil {
			c.out.Failed++
			return nil
		}
		if len(c.out.Pairs) < pairs {
			c.out.Pairs = append(c.out.Pairs, Pair{x, y})
		}
		c.group(subjects[id.Spec], x, y)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.finish(all.read)
	return c.out, nil
}

type comparison struct {
	out   *Changes
	found map[changeKey]*Change
	paths map[changeKey]counterpart // by kind and path
	made  map[string]int64
	full  bool // mostChanges is reached
}

type changeKey struct{ change, kind, from, to, types string }

// counterpart is the place of an old field in the new version.
type counterpart struct {
	paths    []string
	reason   string // why the field has no place
	computed bool   // the field is calculated
}

func (c *comparison) group(s Subject, x, y []record.Record) {
	for _, r := range y {
		c.made[r.Kind]++
	}
	old, now := ofKind(x, s.Spec.Old.Kinds[0].Name), ofKind(y, s.Spec.New.Kinds[0].Name)
	// Only main records have a field-by-field mapping.
	if old == nil || now == nil || s.Mapping == nil {
		return
	}
	name := old.Key.String()
	// Compare leaf values: an object changes only through its fields.
	was, is := leavesOf(old.Doc), leavesOf(now.Doc)
	// come holds the new fields that an old field explains. The rest were added.
	come := map[string]bool{}
	var computed, made []*leaf
	for _, l := range is.all {
		if far := c.look(s.Back, changeKey{kind: now.Kind, to: l.path}, l.path); far.computed {
			// Collect calculated fields apart, because the mapping does not relate them one by one.
			made = append(made, l)
			come[l.path] = true
		}
	}
	for _, l := range was.all {
		far := c.counterpart(s, old.Kind, l.path)
		if far.computed {
			computed = append(computed, l)
			continue
		}
		// The lens may map the field, and this record still lack it.
		there := slices.DeleteFunc(slices.Clone(far.paths), func(p string) bool { return is.at[p] == nil })
		for _, p := range there {
			come[p] = true
		}
		switch {
		case len(far.paths) == 0:
			c.note(Change{Change: "removed", Kind: old.Kind, From: l.path, Reason: far.reason}, name, l, nil)
		case len(there) == 0:
			c.note(Change{Change: "removed", Kind: old.Kind, From: l.path, Reason: "this record lacks it in the new version"}, name, l, nil)
		case len(there) > 1:
			c.note(Change{Change: "split", Kind: old.Kind, From: l.path, To: strings.Join(there, ", ")}, name, l, is.at[there[0]])
		default:
			c.single(old.Kind, name, l, is.at[there[0]])
		}
	}
	c.computed(old.Kind, name, computed, made)
	for _, l := range is.all {
		if !come[l.path] {
			c.note(Change{Change: "added", Kind: now.Kind, To: l.path}, name, nil, l)
		}
	}
}

// computed records calculated fields. One old and one new field belong together. With several
// fields the relation is unknown, so it records each alone.
func (c *comparison) computed(kind, name string, from, to []*leaf) {
	if len(from) == 1 && len(to) == 1 {
		c.note(Change{Change: "computed", Kind: kind, From: from[0].path, To: to[0].path}, name, from[0], to[0])
		return
	}
	at := map[string]*leaf{}
	for _, l := range to {
		at[l.path] = l
	}
	for _, l := range from {
		if same := at[l.path]; same != nil {
			// A field calculated in place is one change, not a removed and an added field.
			delete(at, l.path)
			c.note(Change{Change: "computed", Kind: kind, From: l.path, To: l.path}, name, l, same)
			continue
		}
		c.note(Change{Change: "computed", Kind: kind, From: l.path, Reason: "others are computed from it"}, name, l, nil)
	}
	for _, l := range to {
		if at[l.path] != nil {
			c.note(Change{Change: "computed", Kind: kind, To: l.path}, name, nil, l)
		}
	}
}

// single records the change of a field that becomes one field.
func (c *comparison) single(kind, name string, was, is *leaf) {
	if was.path != is.path {
		c.note(Change{Change: "moved", Kind: kind, From: was.path, To: is.path}, name, was, is)
	}
	switch {
	// Another type usually means another value too, so report only the type.
	case was.typ != is.typ:
		c.note(Change{Change: "type", Kind: kind, From: was.path, To: is.path, Types: lens.TypeName(was.typ) + " to " + lens.TypeName(is.typ)}, name, was, is)
	case was.sum != is.sum:
		c.note(Change{Change: "value", Kind: kind, From: was.path, To: is.path}, name, was, is)
	}
}

func (c *comparison) note(ch Change, name string, was, is *leaf) {
	key := changeKey{ch.Change, ch.Kind, ch.From, ch.To, ch.Types}
	f, ok := c.found[key]
	if !ok {
		// Folding may merge the fields of a map and free space for further changes.
		if len(c.found) >= mostChanges && !c.full {
			c.fold()
			c.full = len(c.found) >= mostChanges // folding freed nothing, so drop further changes
		}
		if c.full {
			return
		}
		ch.Example.Name = name
		if was != nil {
			ch.Example.From = show(was.first)
		}
		if is != nil {
			ch.Example.To = show(is.first)
		}
		f = &ch
		c.found[key] = f
	}
	f.Records++
}

// counterpart returns the lens's counterpart of a path. It asks the lens once for each path.
func (c *comparison) counterpart(s Subject, kind, path string) counterpart {
	return c.look(s.Mapping, changeKey{kind: kind, from: path}, path)
}

func (c *comparison) look(m transform.Mapping, key changeKey, path string) counterpart {
	far, ok := c.paths[key]
	if ok || m == nil {
		return far
	}
	if path == "_id" {
		far = counterpart{paths: []string{"_id"}} // a changed key is still the key
	} else if calculated(m, path) {
		far.computed = true
	} else if fields, err := m.Field(path); err == nil {
		far.paths = fields
	} else {
		var at *transform.MappingError
		far.reason = err.Error()
		if errors.As(err, &at) {
			far.reason = at.Reason
		}
	}
	// The cache must not grow with the number of keys in a map.
	if len(c.paths) < 2*mostChanges {
		c.paths[key] = far
	}
	return far
}

// calculated reports whether a field is calculated from others in the other version. The error of a
// comparison shows it.
func calculated(m transform.Mapping, path string) bool {
	_, err := m.Compare(transform.Condition{Path: path, Op: transform.OpEqual, Values: []any{""}})
	return err != nil && strings.Contains(err.Error(), "it is calculated")
}

func (c *comparison) finish(read []Read) {
	c.out.Sample, c.out.Made = read, []Read{}
	for kind, n := range c.made {
		c.out.Made = append(c.out.Made, Read{kind, n})
	}
	slices.SortFunc(c.out.Made, func(a, b Read) int { return strings.Compare(a.Kind, b.Kind) })
	c.fold()
	for _, ch := range c.found {
		c.out.Changes = append(c.out.Changes, *ch)
	}
	// Sort completely, because the map's order is random.
	order := []string{"moved", "split", "computed", "type", "value", "added", "removed"}
	slices.SortFunc(c.out.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Change), slices.Index(order, b.Change)), -cmp.Compare(a.Records, b.Records),
			strings.Compare(a.Kind, b.Kind), strings.Compare(a.From, b.From), strings.Compare(a.To, b.To), strings.Compare(a.Types, b.Types))
	})
}

func ofKind(rs []record.Record, kind string) *record.Record {
	for i := range rs {
		if rs[i].Kind == kind {
			return &rs[i]
		}
	}
	return nil
}

// leaf holds the values of a document at one path: one value, or the values of all list items.
type leaf struct {
	path  string
	typ   bson.Type
	sum   uint64 // of all values, in order
	first bson.RawValue
}

type leaves struct {
	all []*leaf
	at  map[string]*leaf
}

func leavesOf(doc bson.Raw) leaves {
	l := leaves{at: map[string]*leaf{}}
	l.add("", document(doc))
	return l
}

// add records a value. An object or list counts by its content, or as a value if it is empty.
func (l *leaves) add(path string, v bson.RawValue) {
	if v.Type == bson.TypeEmbeddedDocument || v.Type == bson.TypeArray {
		elems, err := bson.Raw(v.Value).Elements()
		if err == nil && (len(elems) > 0 || path == "") {
			for _, e := range elems {
				name := e.Key()
				if v.Type == bson.TypeArray {
					name = "*"
				}
				if path != "" {
					name = path + "." + name
				}
				l.add(name, e.Value())
			}
			return
		}
	}
	at, ok := l.at[path]
	if !ok {
		at = &leaf{path: path, typ: v.Type, first: v}
		l.at[path] = at
		l.all = append(l.all, at)
	}
	// The multiplication makes the sum depend on the order of list items.
	at.sum = at.sum*1099511628211 ^ xxhash.Sum64(v.Value) ^ uint64(v.Type)
}
