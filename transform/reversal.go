package transform

import (
	"bytes"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/record"
)

// Reversal declares how a result is known to be reversible: the other direction, given the source's
// group as the complement, must turn the result into that group again. Otherwise an overflow, a
// rounding or a forgotten field would be stored without an error, and a rollback would return wrong
// data.
type Reversal int

const (
	// ReversalTried runs the other direction on each result before storing it, which doubles the
	// cost. A result that does not come back is an error of its group.
	ReversalTried Reversal = iota
	// ReversalOwn is for a transformer that rejects every irreversible input itself, or that is
	// reversible by construction, like a lens.
	ReversalOwn
	// ReversalNone is for a transformer whose author accepts that going back loses data. A rollback
	// may then change records that no client has written.
	ReversalNone
)

// Unchecked returns d without the reversal check. It is for callers that store no results, or that
// look for losses themselves.
func Unchecked(d Direction) Direction {
	if of, ok := d.(*direction); ok {
		return unchecked(of)
	}
	return d
}

// NamesOf returns the source kind whose records decide which records of a target kind exist, and
// the mapping from target names to source names. It returns "" and nil if the Spec declares no
// names.
func NamesOf(d Direction, kind string) (lead string, names Mapping) {
	of, ok := d.(*direction)
	if !ok {
		return "", nil
	}
	at, ok := of.target[kind]
	if !ok {
		return "", nil
	}
	c := &of.specs[at.spec]
	// Names describe the first kind only. Groups by content do not follow from names.
	if c.names == nil || c.lineage != "" || c.target.Kinds[0].Name != kind {
		return "", nil
	}
	return c.source.Kinds[0].Name, c.names
}

// Several reports whether a group may have more than one record of a target kind, according to the
// declarations (GroupedKind.Single).
func Several(d Direction, kind string) bool {
	of, ok := d.(*direction)
	if !ok {
		return true
	}
	at, ok := of.target[kind]
	return ok && !at.kind.single()
}

// ReversalOf returns how the results of a group are known to be reversible.
func ReversalOf(d Direction, id GroupID) Reversal {
	if of, ok := d.(*direction); ok && id.Spec >= 0 && id.Spec < len(of.specs) {
		return of.specs[id.Spec].reversal
	}
	return ReversalTried
}

// SameFields reports whether two documents have the same fields in any order, at any depth. The
// order of list items counts.
func SameFields(a, b []byte) bool {
	_, differ := fieldThatDiffers(a, b, false)
	return !differ
}

func unchecked(d *direction) *direction {
	out := *d
	out.unchecked = true
	return &out
}

// takeBack returns an error if a result does not give back the group that it was made from.
func (d *direction) takeBack(c *compiled, src Group, out []record.Record) error {
	if d.unchecked || c.reversal != ReversalTried || len(src.Records) == 0 {
		return nil
	}
	have := Group{Name: src.Name}
	// Clone: the transformer may sort or append to the slices that it gets.
	if c.backNeedsHave {
		have.Records = slices.Clone(src.Records)
	}
	again, err := c.back(Group{Name: src.Name, Records: slices.Clone(out)}, have)
	if err != nil {
		return fmt.Errorf("what it makes for %s cannot be taken back to %s: %w", d.to, d.from, err)
	}
	// changed walks both lists in step, so both need the same order.
	SortRecords(again)
	if what := changed(src.Records, again); what != "" {
		return fmt.Errorf("what it makes for %s does not come back the same in %s: %s; correct the data or the transformer (one that cannot go back by design declares so: Reversal of its Spec, OneWay of a typed.Group or Pair)", d.to, d.from, what)
	}
	return nil
}

// changed describes the first difference between two lists of records in the order of a group. It
// ignores the order of fields, and returns "" if there is no difference.
func changed(want, got []record.Record) string {
	for i := 0; i < len(want) || i < len(got); i++ {
		switch {
		case i == len(got) || i < len(want) && compareRecords(want[i], got[i]) < 0:
			return fmt.Sprintf("%s %s would be gone", want[i].Kind, want[i].Key)
		case i == len(want) || compareRecords(want[i], got[i]) > 0:
			return fmt.Sprintf("%s %s was not there", got[i].Kind, got[i].Key)
		}
		if field, differ := fieldThatDiffers(want[i].Doc, got[i].Doc, false); differ {
			return fmt.Sprintf("%s %s would have another %s", want[i].Kind, want[i].Key, field)
		}
	}
	return ""
}

// fieldThatDiffers returns the path of the first field that differs between two documents. It
// ignores the order of fields, except in lists.
func fieldThatDiffers(a, b []byte, list bool) (path string, differ bool) {
	if bytes.Equal(a, b) {
		return "", false
	}
	as, errA := bsoncore.Document(a).Elements()
	bs, errB := bsoncore.Document(b).Elements()
	if errA != nil || errB != nil {
		return "content", true
	}
	inA, inB := fields{of: as}, fields{of: bs}
	for i, e := range as {
		at := i
		if !list {
			at = inB.find(e.KeyBytes(), i)
		}
		if at < 0 || at >= len(bs) || e[0] != bs[at][0] {
			return e.Key(), true
		}
		x, y := e.Value(), bs[at].Value()
		switch t := bson.Type(e[0]); t {
		case bson.TypeEmbeddedDocument, bson.TypeArray:
			if inner, differ := fieldThatDiffers(x.Data, y.Data, t == bson.TypeArray); differ {
				return e.Key() + "." + inner, true
			}
		default:
			if !bytes.Equal(x.Data, y.Data) {
				return e.Key(), true
			}
		}
	}
	for i, e := range bs {
		if inA.find(e.KeyBytes(), i) < 0 {
			return e.Key(), true
		}
	}
	if len(as) != len(bs) {
		return "number of fields of one name", true
	}
	return "", false
}

// fields finds elements by name.
type fields struct {
	of     []bsoncore.Element
	places map[string]int // the first of each name; made for the first search that needs it
}

// fewFields is the number of elements up to which a search costs less than a map. Lists and maps have
// as many elements as fit into a record.
const fewFields = 32

// find returns the index of the first element with a name, or -1. It looks at the index at first: fields
// are nearly always in the same order.
func (f *fields) find(name []byte, at int) int {
	switch {
	case at < len(f.of) && bytes.Equal(f.of[at].KeyBytes(), name):
		return at
	case len(f.of) <= fewFields:
		return slices.IndexFunc(f.of, func(e bsoncore.Element) bool { return bytes.Equal(e.KeyBytes(), name) })
	case f.places == nil:
		f.places = make(map[string]int, len(f.of))
		for i, e := range slices.Backward(f.of) {
			f.places[string(e.KeyBytes())] = i
		}
	}
	if i, there := f.places[string(name)]; there {
		return i
	}
	return -1
}
