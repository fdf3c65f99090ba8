package typed

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// keepRest sets the field of KeepRest on a side and checks that no type uses its name.
func (s *side) keepRest(field string) error {
	if strings.ContainsAny(field, ".$\x00") || field == "_id" || field == record.ReservedField {
		return fmt.Errorf("KeepRest: %q cannot be the name of a field", field)
	}
	for _, m := range s.members {
		if known := slices.Contains(m.fields, field); known && field != "" {
			return fmt.Errorf("KeepRest: kind %s has a field %s of its own", m.kind.Name, field)
		}
	}
	s.rest = field
	return nil
}

// keeper returns the kind whose one record stores the unknown fields of the other version. ok is
// false for a side that has only maps, because their records may move to other groups.
func (s side) keeper() (m member, ok bool) {
	i := slices.IndexFunc(s.members, func(m member) bool { return !m.many })
	if i < 0 {
		return member{}, false
	}
	return s.members[i], true
}

// restOfRecord holds the fields of one record that its type does not know. It is stored in the
// record of the keeper.
type restOfRecord struct {
	Kind   string        `bson:"kind"`
	Key    bson.RawValue `bson:"key"`
	Fields bson.Raw      `bson:"fields"`
}

// carry stores the unknown fields of the source's records in the target's keeper. It also restores
// to the target's records the fields that the source's keeper stored for them. If the source has no
// keeper, the target's records stay as they are.
func carry(from, to side, src transform.Group, recs []record.Record) ([]record.Record, error) {
	var out, back []restOfRecord
	_, gives := from.keeper()
	// Collect the unknown fields of the source's records, and the fields that the source keeps.
	for _, r := range src.Records {
		m := from.member(r.Kind)
		o, err := open(r.Doc)
		if err != nil {
			return nil, err
		}
		kept, err := o.find(from.rest)
		if err != nil {
			return nil, err
		}
		if kept != nil {
			// The kept fields belong to other records, so they must not travel on as unknown fields of
			// this one.
			o.remove(kept)
			// As in rawdoc.Unmarshal, which takes no arrays.
			err := rawdoc.Validate(kept.val.Value)
			if err == nil {
				err = kept.val.Unmarshal(&back)
			}
			if err != nil {
				return nil, fmt.Errorf("%s %s: %s is not what a group keeps: %w", r.Kind, r.Key, from.rest, err)
			}
		}
		if m.rest {
			continue // the group's functions pass on the field of type Rest
		}
		o.elems = slices.DeleteFunc(o.elems, func(e *element) bool {
			return slices.Contains(m.fields, string(e.name)) || string(e.name) == "_id"
		})
		if len(o.elems) > 0 {
			out = append(out, restOfRecord{r.Kind, r.Key.Value(), o.encode(nil)})
		}
	}
	// Equal records must give equal bytes, whatever the order of the source.
	slices.SortFunc(out, func(a, b restOfRecord) int {
		if c := strings.Compare(a.Kind, b.Kind); c != 0 {
			return c
		}
		return record.CompareValues(a.Key, b.Key)
	})
	// Restore the kept fields in the results, and store the collected ones in the keeper.
	keeper, keeps := to.keeper()
	placed := !keeps || len(out) == 0
	for i, r := range recs {
		m := to.member(r.Kind)
		o, err := open(r.Doc)
		if err != nil {
			return nil, err
		}
		// Without a keeper the source has no opinion on the target's unknown fields.
		if gives && !m.rest {
			if err := o.restore(m, to.rest, restFor(back, r)); err != nil {
				return nil, fmt.Errorf("%s %s: %w", r.Kind, r.Key, err)
			}
		}
		if keeps && r.Kind == keeper.kind.Name {
			if err := o.keep(to.rest, out); err != nil {
				return nil, err
			}
			placed = true
		}
		recs[i].Doc = o.encode(nil)
	}
	// The unknown fields have no place in the target. Dropping them would lose data.
	if !placed {
		return nil, fmt.Errorf("%s: there is no record of %s to keep, in %s, fields of other records that their types do not know", transform.ShowGroup(src.Name), keeper.kind.Name, to.rest)
	}
	return recs, nil
}

func (s side) member(kind string) member {
	i := slices.IndexFunc(s.members, func(m member) bool { return m.kind.Name == kind })
	return s.members[i]
}

func restFor(all []restOfRecord, r record.Record) bson.Raw {
	for _, kept := range all {
		if kept.Kind == r.Kind && record.CompareValues(kept.Key, r.Key.Value()) == 0 {
			return kept.Fields
		}
	}
	return nil
}

// restore sets the fields that the type does not know to exactly those that were kept for the
// record. A kept field takes its old place if the record still has it.
func (o *object) restore(m member, restField string, fields bson.Raw) error {
	kept := &object{}
	if fields != nil {
		var err error
		if kept, err = open(fields); err != nil {
			return err
		}
	}
	var elems []*element
	for _, e := range o.elems {
		if slices.Contains(m.fields, string(e.name)) || string(e.name) == "_id" || string(e.name) == restField {
			elems = append(elems, e)
			continue
		}
		with, err := kept.find(string(e.name))
		if err != nil {
			return err
		}
		if with != nil {
			elems = append(elems, with)
			kept.remove(with)
		}
	}
	// The record no longer has the remaining fields, so they go to the end.
	for _, e := range kept.elems {
		// A newer type may know a field that was unknown when it was kept. Its two values may differ.
		if in, err := o.find(string(e.name)); err != nil || in != nil {
			return fmt.Errorf("field %s was unknown when it was kept, and is known now", e.name)
		}
		elems = append(elems, e)
	}
	o.elems = elems
	return nil
}

// keep sets the field for unknown fields of other records. It removes the field if there are none.
func (o *object) keep(field string, rest []restOfRecord) error {
	e, err := o.find(field)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		if e != nil {
			o.remove(e)
		}
		return nil
	}
	at, list := bsoncore.AppendArrayStart(nil)
	for i, r := range rest {
		doc, err := bson.Marshal(r)
		if err != nil {
			return err
		}
		list = bsoncore.AppendDocumentElement(list, fmt.Sprint(i), doc)
	}
	list, err = bsoncore.AppendArrayEnd(list, at)
	if err != nil {
		return err
	}
	if e == nil {
		e = &element{name: []byte(field)}
		o.elems = append(o.elems, e)
	}
	e.val = bson.RawValue{Type: bson.TypeArray, Value: list}
	return nil
}
