package transform

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// direction is a step in one of its two directions.
type direction struct {
	from, to, hash string
	specs          []compiled
	source, target map[string]kindAt
	sourceKinds    []record.KindSpec
	targetKinds    []record.KindSpec
	stranded       map[string]error // source kinds whose records cannot be migrated, with the reason
	unchecked      bool             // skip takeBack
}

var _ Direction = (*direction)(nil)

// compiled is a Spec with its sides in the order of the direction.
type compiled struct {
	name           string
	source, target Side
	apply          Func
	needsHave      bool
	back           Func // the Func of the other direction
	backNeedsHave  bool // back takes the group that apply got as its complement
	reversal       Reversal
	whole          bool
	single         bool    // a target group never has more than one record
	lineage        string  // the lineage kind; empty for groups by name
	names          Mapping // from the first target kind's names to the source's; nil if unknown
}

// kindAt is a kind and the index of its spec.
type kindAt struct {
	spec int
	kind GroupedKind
}

func compile(from, to, hash string, specs []Spec, up bool) *direction {
	d := &direction{from: from, to: to, hash: hash, source: map[string]kindAt{}, target: map[string]kindAt{}}
	// Both directions must give the lineage kind the same name, so order the versions.
	older, newer := upgradestate.APIVersion(from), upgradestate.APIVersion(to)
	if !up {
		older, newer = newer, older
	}
	for i, sp := range specs {
		c := compiled{name: sp.Name, source: sp.Old, target: sp.New, apply: sp.Up, needsHave: sp.UpNeedsHave, back: sp.Down, backNeedsHave: sp.DownNeedsHave, reversal: sp.Reversal, names: sp.DownNames}
		if !up {
			c.names = sp.UpNames
			c.source, c.target, c.apply, c.needsHave, c.back, c.backNeedsHave = sp.New, sp.Old, sp.Down, sp.DownNeedsHave, sp.Up, sp.UpNeedsHave
		}
		if sp.oneSided() {
			d.specs = append(d.specs, c)
			d.addOneSided(c, sp.introduced)
			continue
		}
		if sp.byContent() {
			// Lineage finds the records that left a group.
			c.lineage = LineageKind(sp.Name, older, newer)
			d.targetKinds = append(d.targetKinds, record.KindSpec{Name: c.lineage})
		} else {
			c.whole, c.single = one(c.source), one(c.target)
			// The transformer's result lacks records that left the group. The engine finds them by
			// reading the target.
			c.needsHave = c.needsHave || !c.single
			c.backNeedsHave = c.backNeedsHave || !one(c.source)
		}
		d.specs = append(d.specs, c)
		for _, k := range c.source.Kinds {
			d.source[k.Name] = kindAt{i, k}
			d.sourceKinds = append(d.sourceKinds, k.KindSpec)
		}
		for _, k := range c.target.Kinds {
			d.target[k.Name] = kindAt{i, k}
			d.targetKinds = append(d.targetKinds, k.KindSpec)
		}
	}
	return d
}

// one reports whether a group of a side never has more than one record.
func one(s Side) bool { return len(s.Kinds) == 1 && s.Kinds[0].single() }

func (d *direction) From() string { return d.from }
func (d *direction) To() string   { return d.to }
func (d *direction) Hash() string { return d.hash }

func (d *direction) SourceKinds() []record.KindSpec { return slices.Clone(d.sourceKinds) }
func (d *direction) TargetKinds() []record.KindSpec { return slices.Clone(d.targetKinds) }

func (d *direction) GroupOf(kind string, key record.Key) (GroupID, bool, error) {
	// Reporting ok with an error parks the record. Without it, the record would be lost silently.
	if err, ok := d.stranded[kind]; ok {
		return GroupID{}, true, err
	}
	return d.groupOf(d.source, false, kind, key)
}

func (d *direction) GroupOfTarget(kind string, key record.Key) (GroupID, bool, error) {
	return d.groupOf(d.target, true, kind, key)
}

func (d *direction) groupOf(kinds map[string]kindAt, target bool, kind string, key record.Key) (id GroupID, ok bool, err error) {
	at, ok := kinds[kind]
	if !ok {
		return GroupID{}, false, nil
	}
	// Reject malformed keys here, before author code sees them.
	if err := record.CheckKey(key); err != nil {
		return GroupID{}, true, fmt.Errorf("group of %s: %w", kind, err)
	}
	if d.specs[at.spec].lineage != "" {
		return unit{ref{kind, key}, target}.id(at.spec), true, nil
	}
	if at.kind.GroupOf == nil {
		return GroupID{at.spec, string(key)}, true, nil
	}
	// GroupOf is the author's code. A panic must park one key, not end the controller.
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p, debug.Stack())
		}
	}()
	name, err := at.kind.GroupOf(key)
	if err != nil {
		return GroupID{}, true, fmt.Errorf("group of %s %s: %w", kind, key, err)
	}
	return GroupID{at.spec, name}, true, nil
}

func (d *direction) SourceSelect(id GroupID) []record.Selector {
	if d.specs[id.Spec].lineage != "" {
		return unitSelector(id.Name, false)
	}
	return selectors(d.specs[id.Spec].source, id.Name)
}

func (d *direction) TargetSelect(id GroupID) []record.Selector {
	if d.specs[id.Spec].lineage != "" {
		return unitSelector(id.Name, true)
	}
	return selectors(d.specs[id.Spec].target, id.Name)
}

func selectors(s Side, group string) []record.Selector {
	out := make([]record.Selector, len(s.Kinds))
	for i, k := range s.Kinds {
		if k.Select != nil {
			out[i] = k.Select(group)
		} else {
			out[i] = record.Selector{Key: record.Key(group)}
		}
		out[i].Kind = k.Name
	}
	return out
}

func (d *direction) Anchor(id GroupID) (string, record.Key) {
	c := &d.specs[id.Spec]
	// A unit's anchor is its lineage entry, which every write of the unit contains.
	if u, ok := unitOf(id.Name); ok && c.lineage != "" {
		return c.lineage, memberKey(u.ref)
	}
	s := c.target
	if s.Anchor != nil {
		return s.Anchor(id.Name)
	}
	return s.Kinds[0].Name, record.Key(id.Name)
}

func (d *direction) Whole(kind string) bool {
	at, ok := d.source[kind]
	return ok && d.specs[at.spec].whole
}

func (d *direction) Twin(kind string) string {
	at, ok := d.source[kind]
	// A twin needs one record on each side, and keys that are not mapped.
	if !ok || !d.Whole(kind) || !d.specs[at.spec].single || at.kind.GroupOf != nil {
		return ""
	}
	if k := d.specs[at.spec].target.Kinds[0]; k.GroupOf == nil {
		return k.Name
	}
	return ""
}

func (d *direction) NeedsHave(id GroupID) bool { return d.specs[id.Spec].needsHave }

func (d *direction) LineageKind(spec int) string {
	if spec < 0 || spec >= len(d.specs) {
		return ""
	}
	return d.specs[spec].lineage
}

func (d *direction) ContentOf(r record.Record) (string, error) {
	if r.Err != nil {
		return "", r.Err
	}
	return contentOf(d.source[r.Kind].kind, r)
}

func (d *direction) Transform(id GroupID, src, have Group) (out []record.Record, err error) {
	if id.Spec < 0 || id.Spec >= len(d.specs) {
		return nil, fmt.Errorf("transform: no spec %d", id.Spec)
	}
	c := &d.specs[id.Spec]
	// An unreadable record fails its own group, with the error of its read.
	for _, r := range src.Records {
		if r.Err != nil {
			return nil, r.Err
		}
	}
	if c.needsHave {
		// Without the complement, fields that only the target has would be lost.
		for _, r := range have.Records {
			if r.Err != nil {
				return nil, fmt.Errorf("%s %s of %s, which is needed for what %s has no place for: %w", r.Kind, r.Key, d.to, d.from, r.Err)
			}
		}
	}
	// Transformers are the author's code. Conceal keeps data out of errors that are stored.
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, panicked(p, debug.Stack())
		}
		if err != nil {
			err = fmt.Errorf("transform %s: %w", c.name, Conceal(err, src, have))
		}
	}()
	out, err = c.apply(src, have)
	if err != nil {
		return nil, err
	}
	// Results are compared with stored documents byte by byte, so they need the stored form.
	for i := range out {
		out[i].Doc = record.Stored(out[i].Doc)
	}
	if err := d.check(id, c, out); err != nil {
		return nil, fmt.Errorf("bad result: %w", err)
	}
	if err := d.takeBack(c, src, out); err != nil {
		return nil, err
	}
	return out, nil
}

// check refuses results that the engine could not store or would find in another group later. It
// also sorts the records.
func (d *direction) check(id GroupID, c *compiled, out []record.Record) error {
	if len(out) > 1 {
		slices.SortFunc(out, compareRecords)
	}
	for i := range out {
		r := &out[i]
		at, ok := d.target[r.Kind]
		if !ok || at.spec != id.Spec {
			return fmt.Errorf("kind %q is not one of the spec's kinds of %s", r.Kind, d.to)
		}
		if r.Key == "" {
			return fmt.Errorf("a record of %s has no key", r.Kind)
		}
		switch {
		case c.lineage != "":
			// The reverse direction must find the same groups.
			group, err := contentOf(at.kind, *r)
			if err != nil {
				return err
			}
			if group != id.Name {
				return fmt.Errorf("%s %s names group %s, but was made of group %s", r.Kind, r.Key, ShowGroup(group), ShowGroup(id.Name))
			}
		case at.kind.GroupOf == nil:
			if string(r.Key) != id.Name {
				return fmt.Errorf("%s %s is in another group", r.Kind, r.Key)
			}
		default:
			group, err := at.kind.GroupOf(r.Key)
			if err != nil {
				return fmt.Errorf("%s %s: %w", r.Kind, r.Key, err)
			}
			if group != id.Name {
				return fmt.Errorf("%s %s is in another group", r.Kind, r.Key)
			}
		}
		if i > 0 && compareRecords(out[i-1], *r) == 0 {
			return fmt.Errorf("%s %s is there twice", r.Kind, r.Key)
		}
		if err := checkID(r.Doc, r.Key); err != nil {
			return fmt.Errorf("%s %s: %w", r.Kind, r.Key, err)
		}
	}
	return nil
}

func compareRecords(a, b record.Record) int {
	if c := strings.Compare(a.Kind, b.Kind); c != 0 {
		return c
	}
	return strings.Compare(string(a.Key), string(b.Key))
}

// checkID compares a document's _id with its key. It does not allocate if the _id is in canonical
// form, as nearly all are.
func checkID(doc []byte, key record.Key) error {
	id, ok := idOf(doc)
	if !ok {
		return errors.New("document has no readable _id")
	}
	// Type and bytes are equal: the _id is canonical. Otherwise the number may still be equal in
	// another type.
	if byte(id.Type) == key[0] && string(id.Value) == string(key[1:]) {
		return nil
	}
	got, err := record.KeyOf(id)
	if err != nil {
		return err
	}
	if got != key {
		return fmt.Errorf("document has _id %s", got)
	}
	return nil
}

// stackLines limits the stack in a panic's error. The error is stored with the parked group, and
// the top frames matter most.
const stackLines = 24

// panicked converts a panic to an error. It drops the frames of debug.Stack and of the recovering
// function.
func panicked(p any, stack []byte) error {
	lines := strings.Split(strings.TrimSpace(string(stack)), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "panic(") && i+2 < len(lines) {
			lines = lines[i+2:]
			break
		}
	}
	if len(lines) > stackLines {
		lines = append(lines[:stackLines], "...")
	}
	return &panicError{text: fmt.Sprint(p), stack: strings.Join(lines, "\n")}
}
