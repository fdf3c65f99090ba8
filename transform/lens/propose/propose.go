// Package propose drafts a lens, which is a transformer in YAML that converts records of one version
// to the other and back. It drafts from one of two sources:
//
//   - samples (Lens): records of an old version, and the same records in a new version. It
//     recognizes moved and renamed fields, values with another type or spelling, split and joined
//     strings, and added and removed fields. It runs the draft over the samples, and lists the
//     fields that it does not explain.
//   - the protos of two API versions (Proto, Resources, Messages), for services that store their
//     messages as documents. Stub drafts the Go code of such a service.
//
// The command 'dbcontroller lens init' uses it.
//
// A draft always parses. Its comments mark every uncertain operation. A person must review the
// draft: two fields with the same values by accident look like a renamed field. Samples give no
// keys of another form, further kinds, or changes within lists.
//
// It is not for users and may change with any version.
//
// Begin with the functions Lens and Messages.
package propose

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
)

// MaxRecords is the number of records that a caller should read of each sample. Lens does not
// enforce it. More records do not improve a draft.
const (
	MaxRecords = 5000
	maxFields  = 400
	maxTable   = 20 // entries of a table of values
)

// Draft is a proposed lens.
type Draft struct {
	Text []byte // YAML, as lens.Parse reads it
	// Pairs counts the records in both samples, matched by _id. Explained counts those that the
	// lens converts exactly.
	Pairs, Explained int
	// Unsure counts the comments that ask for a decision.
	Unsure int
}

// pair is one record in both versions.
type pair struct {
	old, now bson.Raw
	was, is  map[string]bson.RawValue // by path
}

type drafter struct {
	pairs    []pair
	old, now []string // paths that only one version has
	both     []string
	ops      []string // lines of YAML
	items    bool     // ops are for the items of a list or map
	unsure   int
}

// Lens drafts the lens between two samples. from and to name the kinds. Equal samples give equal
// drafts. It returns an error if no _id is in both samples, or if a sample has more than 400
// different fields.
func Lens(from, to string, old, now []bson.Raw) (*Draft, error) {
	d := &drafter{}
	if err := d.match(old, now); err != nil {
		return nil, err
	}
	// The samples may be of other records, or the keys may have changed.
	if len(d.pairs) == 0 {
		return nil, fmt.Errorf("no record of %d and %d has the same _id in both samples, so records cannot be paired: give samples of the same records; if the new version has other keys, give its records their old ones", len(old), len(now))
	}
	// Each step takes the fields that it explains from the list, so the most certain steps come
	// first.
	d.moved()
	d.split()
	d.joined()
	d.kept()
	d.come()
	d.gone()
	return d.draft(from, to)
}

// match pairs the records by _id and divides their fields into old, new and common ones.
func (d *drafter) match(old, now []bson.Raw) error {
	by := map[string]bson.Raw{}
	for _, doc := range now {
		id := doc.Lookup("_id")
		// Type and bytes together identify the _id.
		by[string(id.Type)+string(id.Value)] = doc
	}
	inOld, inNew := map[string]bool{}, map[string]bool{}
	for _, doc := range old {
		id := doc.Lookup("_id")
		other, there := by[string(id.Type)+string(id.Value)]
		if !there {
			continue
		}
		p := pair{old: doc, now: other, was: map[string]bson.RawValue{}, is: map[string]bson.RawValue{}}
		flatten("", doc, p.was)
		flatten("", other, p.is)
		for path := range p.was {
			inOld[path] = true
		}
		for path := range p.is {
			inNew[path] = true
		}
		d.pairs = append(d.pairs, p)
	}
	// Every old field is compared with every new one.
	if len(inOld) > maxFields || len(inNew) > maxFields {
		return fmt.Errorf("the samples have %d and %d different fields, and at most %d are compared: an object with a field for each of many keys is a map, for which 'each' exists; leave it out of the samples", len(inOld), len(inNew), maxFields)
	}
	for path := range inOld {
		if inNew[path] {
			d.both = append(d.both, path)
		} else {
			d.old = append(d.old, path)
		}
	}
	for path := range inNew {
		if !inOld[path] {
			d.now = append(d.now, path)
		}
	}
	// The maps above iterate in random order, and drafts must be reproducible.
	slices.Sort(d.old)
	slices.Sort(d.now)
	slices.Sort(d.both)
	return nil
}

// textOf returns the text of a string value. A damaged one counts as empty.
func textOf(v bson.RawValue) string {
	text, _ := v.StringValueOK()
	return text
}

// flatten collects the values of a document by path. Lists and empty objects count as values.
func flatten(path string, doc bson.Raw, into map[string]bson.RawValue) {
	elems, err := doc.Elements()
	if err != nil {
		return
	}
	for _, e := range elems {
		name := e.Key()
		if path != "" {
			name = path + "." + name
		}
		if inner, ok := e.Value().DocumentOK(); ok && len(inner) > 5 {
			flatten(name, inner, into)
			continue
		}
		if name != "_id" {
			into[name] = e.Value()
		}
	}
}

// op adds an operation. If it does not parse, op adds a comment instead.
func (d *drafter) op(text, comment string) {
	// Test each operation alone, so that one bad name does not spoil the draft.
	alone := text
	if d.items {
		alone = "each: {field: v, operations: [" + text + "]}"
	}
	if _, err := lens.Parse("draft.yaml", []byte("operations:\n  - "+alone+"\n")); err != nil {
		d.remark("not possible: " + text)
		return
	}
	if comment != "" {
		d.unsure++
		text += " # " + strings.Join(strings.Fields(comment), " ")
	}
	d.ops = append(d.ops, "  - "+text)
}

func (d *drafter) remark(text string) {
	d.unsure++
	d.ops = append(d.ops, "  # "+strings.Join(strings.Fields(text), " "))
}

// converted adds the operations that convert a field, if any.
func (d *drafter) converted(field string, fits []*way) {
	if len(fits) == 0 {
		return
	}
	ops, comment := describe(field, fits)
	for i, op := range ops {
		if i < len(ops)-1 {
			d.op(op, "")
		} else {
			d.op(op, comment)
		}
	}
}

// moved finds fields whose values moved to another field, perhaps with another type.
func (d *drafter) moved() {
	var left []string
	for _, q := range d.now {
		var fits []change
		for _, p := range d.old {
			// A table between two differently named fields would often be an accident.
			if c, ok := d.compare(p, q); ok && c.table == nil {
				fits = append(fits, c)
			}
		}
		if len(fits) == 0 {
			left = append(left, q)
			continue
		}
		// Several fields may hold the same values. Take the best and mention the next.
		slices.SortStableFunc(fits, func(a, b change) int { return b.score(q) - a.score(q) })
		best := fits[0]
		comment := ""
		switch {
		case len(fits) > 1:
			comment = "or from " + fits[1].from + ", which has the same values"
		case best.distinct < 2:
			comment = "all records have the same value: is it really the same field?"
		}
		op := fmt.Sprintf("rename: {from: %s, to: %s}", quote(best.from), quote(q))
		// rename works within one object only.
		if strings.Contains(best.from+q, ".") {
			op = fmt.Sprintf("move: {from: %s, to: %s}", quote(best.from), quote(q))
		}
		d.op(op, comment)
		d.converted(q, best.ways)
		// A field can have moved to one place only.
		d.old = slices.DeleteFunc(d.old, func(p string) bool { return p == best.from })
	}
	d.now = left
}

// change is a possible change of one field to another.
type change struct {
	from     string
	ways     []*way            // conversions that explain all records; nil: the values are equal, or table explains them
	table    map[string]string // set if neither equal values nor a conversion explain the change
	both     int               // number of records with both fields
	distinct int               // number of distinct values
}

// score prefers fields with the same name, and then equal values.
func (c change) score(to string) int {
	s := 0
	if last(c.from) == last(to) {
		s += 4
	}
	if len(c.ways) == 0 {
		s += 2
	}
	if c.distinct > 1 {
		s++
	}
	return s
}

func last(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// compare reports whether a field became another in all records. Each record must have both fields
// or neither, with an equal value, or the result of one conversion, or that of one table.
func (d *drafter) compare(p, q string) (change, bool) {
	c := change{from: p}
	values, table := map[string]bool{}, map[string]string{}
	equal, fits := true, allWays()
	for _, x := range d.pairs {
		was, had := x.was[p]
		is, has := x.is[q]
		if had != has {
			return c, false
		}
		if !had {
			continue
		}
		c.both++
		values[was.String()] = true
		same := was.Equal(is)
		equal = equal && same
		// Operations leave null as it is.
		if !same || was.Type != bson.TypeNull {
			fits = remaining(fits, was, is)
			if table != nil && !enter(table, was, is) {
				table = nil
			}
		}
		if !equal && len(fits) == 0 && table == nil {
			return c, false
		}
	}
	c.distinct = len(values)
	switch {
	case equal:
	case len(fits) > 0:
		c.ways = fits
	default:
		back := map[string]bool{}
		for _, to := range table {
			back[to] = true
		}
		if len(back) != len(table) || c.both < 2*len(table) {
			return c, false // irreversible, or nearly one entry for each record
		}
		c.table = table
	}
	return c, c.both > 0
}

// enter puts two strings into a table. It returns false if they do not fit into it.
func enter(table map[string]string, was, is bson.RawValue) bool {
	if was.Type != bson.TypeString || is.Type != bson.TypeString {
		return false
	}
	// One old value with two new values is no table.
	if to, known := table[textOf(was)]; known && to != textOf(is) {
		return false
	}
	table[textOf(was)] = textOf(is)
	return len(table) <= maxTable
}

// kept looks for changed values in fields of both versions.
func (d *drafter) kept() {
	for _, p := range d.both {
		same := true
		for _, x := range d.pairs {
			was, had := x.was[p]
			is, has := x.is[p]
			same = same && had == has && (!had || was.Equal(is))
		}
		if same {
			continue
		}
		c, ok := d.compare(p, p)
		switch {
		case ok && len(c.ways) > 0:
			d.converted(p, c.ways)
		case ok && c.table != nil:
			var entries []string
			for _, from := range slices.Sorted(maps.Keys(c.table)) {
				entries = append(entries, literal(from)+": "+literal(c.table[from]))
			}
			d.op(fmt.Sprintf("convert: {field: %s, table: {%s}}", quote(p), strings.Join(entries, ", ")), "the table has the values of the samples: do others exist?")
		default:
			d.remark(p + ": its values differ, and no conversion explains them: try compute, normalize or a hook")
		}
	}
}

// come adds the new fields that no other step explained.
func (d *drafter) come() {
	for _, q := range d.now {
		counts, first := map[string]int{}, map[string]bson.RawValue{}
		best, has := "", 0
		for _, x := range d.pairs {
			v, ok := x.is[q]
			if !ok {
				continue
			}
			has++
			counts[v.String()]++
			first[v.String()] = v
			// The most frequent value is the likely default.
			if best == "" || counts[v.String()] > counts[best] {
				best = v.String()
			}
		}
		value, ok := scalar(first[best])
		if !ok {
			d.remark(fmt.Sprintf("%s: it is new, of type %s: add it with a value, or compute it", q, lens.TypeName(first[best].Type)))
			continue
		}
		comment := ""
		if len(counts) > 1 || has < len(d.pairs) {
			comment = fmt.Sprintf("the samples have %d values of it, in %d of %d records: is this the value for records without the field?", len(counts), has, len(d.pairs))
		}
		d.op(fmt.Sprintf("add: {field: %s, value: %s}", quote(q), value), comment)
	}
}

// gone removes the old fields that no other step explained.
func (d *drafter) gone() {
	for _, p := range d.old {
		d.op(fmt.Sprintf("remove: {field: %s}", quote(p)), "no field of the new sample has its values: was it removed?")
	}
}

// text writes the lens, and parses it. head stands between its kinds and its operations.
func (d *drafter) text(from, to, head string) (string, *lens.Lens, error) {
	head = fmt.Sprintf("lens: 1\nkinds: {from: %s, to: %s}\n", quote(from), quote(to)) + head
	body := "operations: []\n"
	if slices.ContainsFunc(d.ops, func(l string) bool { return strings.HasPrefix(l, "  - ") }) {
		body = "operations:\n" + strings.Join(d.ops, "\n") + "\n"
	} else if len(d.ops) > 0 {
		body += strings.Join(d.ops, "\n") + "\n"
	}
	l, err := lens.Parse("draft.yaml", []byte(head+body))
	if err != nil {
		// Operations that parse alone may conflict with each other. Then propose them as a comment.
		body = "operations: []\n  # These do not go together (" + strings.Join(strings.Fields(err.Error()), " ") + "):\n" + strings.ReplaceAll(strings.Join(d.ops, "\n"), "  - ", "  # - ") + "\n"
		if l, err = lens.Parse("draft.yaml", []byte(head+body)); err != nil {
			return "", nil, err
		}
		d.unsure++
	}
	return head + body, l, nil
}

// draft writes the lens, runs it over the samples and lists the unexplained fields.
func (d *drafter) draft(from, to string) (*Draft, error) {
	text, l, err := d.text(from, to, "")
	if err != nil {
		return nil, err
	}
	out := &Draft{Pairs: len(d.pairs), Unsure: d.unsure}
	failed, differ := 0, map[string]int{}
	for _, x := range d.pairs {
		// Without a complement, as for a record that is new in the new version.
		made, err := l.Up(x.old, nil)
		switch {
		case err != nil:
			failed++
		case transform.SameFields(made, x.now):
			out.Explained++
		default:
			is := map[string]bson.RawValue{}
			flatten("", made, is)
			for path, v := range x.is {
				if w, there := is[path]; !there || !w.Equal(v) {
					differ[path]++
				}
				// The fields left in is are the ones that only the draft makes.
				delete(is, path)
			}
			for path := range is {
				differ[path]++
			}
		}
	}
	// State the draft's success at its top, before anyone trusts it.
	tail := fmt.Sprintf("# Drafted from %d records that both samples have: the lens reproduces %d of them.\n", out.Pairs, out.Explained)
	if failed > 0 {
		tail += fmt.Sprintf("# %d fail: 'dbcontroller lens lint' shows why.\n", failed)
	}
	for _, path := range slices.Sorted(maps.Keys(differ)) {
		// Users chose the names of fields: a line break in one must not end the comment.
		tail += fmt.Sprintf("# Not explained: %s, in %d of them.\n", strings.Join(strings.Fields(path), " "), differ[path])
	}
	out.Text = []byte(tail + text)
	return out, nil
}
