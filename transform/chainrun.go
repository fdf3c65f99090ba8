package transform

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/record"
)

// run executes a joined spec. It calls each step through the step's own Direction, which checks the
// inner results like results to store.
type run struct {
	j         *joint
	middle    string
	sameNames map[string]samename // by middle kind
	// upHeld and downHeld report that the first transformer of that direction needs the complement.
	// The run computes it by transforming the target's records back to the middle version.
	upHeld, downHeld bool
}

func (r *run) up(src, have Group) ([]record.Record, error) {
	var held []record.Record
	var err error
	if r.upHeld {
		// The first step needs the middle version's records. They exist only as a transformation of
		// the target.
		if held, err = through(r.j.bDown, have.Records, nil, nil); err != nil {
			return nil, fmt.Errorf("what %s holds: %w", r.j.b.newVersion, err)
		}
	}
	mid, err := through(r.j.aUp, src.Records, held, nil)
	if err != nil {
		return nil, err
	}
	if err := r.check(mid); err != nil {
		return nil, err
	}
	out, err := through(r.j.bUp, mid, have.Records, r.j.dropped)
	if err != nil {
		return nil, err
	}
	return keepOrder(out, have.Records), nil
}

func (r *run) down(src, have Group) ([]record.Record, error) {
	var held []record.Record
	var err error
	if r.downHeld {
		// As in up: compute the middle version's records from the old ones.
		if held, err = through(r.j.aUp, have.Records, nil, nil); err != nil {
			return nil, fmt.Errorf("what %s holds: %w", r.j.a.oldVersion, err)
		}
	}
	mid, err := through(r.j.bDown, src.Records, held, nil)
	if err != nil {
		return nil, err
	}
	if err := r.check(mid); err != nil {
		return nil, err
	}
	// Add them after the check: b's specs do not group dropped kinds.
	if mid, err = r.withDropped(mid, held); err != nil {
		return nil, err
	}
	out, err := through(r.j.aDown, mid, have.Records, nil)
	if err != nil {
		return nil, err
	}
	return keepOrder(out, have.Records), nil
}

// check refuses middle records that the two specs would put into groups of different names.
func (r *run) check(mid []record.Record) error {
	for _, rec := range mid {
		s, ok := r.sameNames[rec.Kind]
		if !ok {
			continue
		}
		a, err := contentOf(s.root, rec)
		if err != nil {
			return err
		}
		b, err := contentOf(s.leaf, rec)
		if err != nil {
			return err
		}
		if a != b {
			return fmt.Errorf("%s %s of %s is in group %s of transformer %s and in group %s of %s: in a chain both have to name it the same, so upgrade to %s first",
				rec.Kind, rec.Key, r.middle, ShowGroup(a), s.rootSpec, ShowGroup(b), s.leafSpec, r.middle)
		}
	}
	return nil
}

// withDropped restores the middle version's discontinued kinds, for groups that still exist.
func (r *run) withDropped(mid, held []record.Record) ([]record.Record, error) {
	if len(r.j.dropped) == 0 || len(held) == 0 {
		return mid, nil
	}
	// Dropped records of a group that no longer exists are deleted with the group.
	there := map[GroupID]bool{}
	for _, rec := range mid {
		if id, ok, err := r.j.aDown.groupOfRecord(rec, false); ok && err == nil {
			there[id] = true
		}
	}
	for _, rec := range held {
		if !r.j.dropped[rec.Kind] {
			continue
		}
		id, _, err := r.j.aDown.groupOfRecord(rec, false)
		if err != nil {
			return nil, err
		}
		if there[id] {
			mid = append(mid, rec)
		}
	}
	return mid, nil
}

// through transforms records by one step, group by group. dropped are the kinds that the step
// discontinues. Any other kind that the step does not take is an error, because its records would
// be lost.
func through(d *direction, src, have []record.Record, dropped map[string]bool) ([]record.Record, error) {
	if len(src) == 0 {
		return nil, nil
	}
	held := map[GroupID][]record.Record{}
	for _, rec := range have {
		// A held record without a group is no group's complement, so ignoring it is safe.
		if id, ok, err := d.groupOfRecord(rec, true); ok && err == nil && d.NeedsHave(id) {
			held[id] = append(held[id], rec)
		}
	}
	groups := map[GroupID][]record.Record{}
	var ids []GroupID
	for _, rec := range src {
		id, ok, err := d.groupOfRecord(rec, false)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s %s of %s: %w", rec.Kind, rec.Key, d.from, err)
		case !ok && dropped[rec.Kind]:
			continue
		case !ok:
			return nil, fmt.Errorf("%s %s of %s has no counterpart in %s", rec.Kind, rec.Key, d.from, d.to)
		}
		// Keep the order of src: iterating over the map would make results random.
		if _, seen := groups[id]; !seen {
			ids = append(ids, id)
		}
		groups[id] = append(groups[id], rec)
	}
	var out []record.Record
	for _, id := range ids {
		s, h := Group{id.Name, groups[id]}, Group{id.Name, held[id]}
		// Transformers get their groups in order, as from the engine.
		SortRecords(s.Records)
		SortRecords(h.Records)
		rs, err := d.Transform(id, s, h)
		if err != nil {
			return nil, err
		}
		out = append(out, rs...)
	}
	return out, nil
}

// groupOfRecord returns the group of a live record, for specs by name and by content.
func (d *direction) groupOfRecord(r record.Record, target bool) (GroupID, bool, error) {
	kinds, of := d.source, d.GroupOf
	if target {
		kinds, of = d.target, d.GroupOfTarget
	}
	at, ok := kinds[r.Kind]
	if !ok || d.specs[at.spec].lineage == "" {
		return of(r.Kind, r.Key)
	}
	name, err := contentOf(at.kind, r)
	return GroupID{at.spec, name}, true, err
}

// keepOrder replaces a record by the target's bytes if they differ only in the order of top-level
// fields. A step may order fields like the middle version, which nobody stored. Without this, every
// comparison would change the record.
func keepOrder(out, have []record.Record) []record.Record {
	holds := locate(have)
	for i := range out {
		at := holds.find(out[i].Kind, out[i].Key)
		if at >= 0 && sameTopFields(out[i].Doc, have[at].Doc) {
			out[i].Doc = have[at].Doc
		}
	}
	return out
}

// sameTopFields reports whether two documents differ, but only in the order of their top-level
// fields.
func sameTopFields(a, b bson.Raw) bool {
	if len(a) != len(b) || bytes.Equal(a, b) {
		return false // other lengths mean other fields; equal bytes need no change
	}
	as, okA := elements(a)
	bs, okB := elements(b)
	return okA && okB && slices.Equal(as, bs)
}

// elements returns the elements of a document in the order of their bytes.
func elements(doc bson.Raw) ([]string, bool) {
	list, err := bsoncore.Document(doc).Elements()
	if err != nil {
		return nil, false
	}
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = string(e)
	}
	slices.SortFunc(out, strings.Compare)
	return out, true
}
