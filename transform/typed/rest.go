package typed

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// keepRest checks the field of KeepRest against a side.
func (s *side) keepRest(field string) error {
	if strings.ContainsAny(field, ".$\x00") || field == "_id" || field == record.ReservedField {
		return fmt.Errorf("KeepRest: %q cannot be the name of a field", field)
	}
	for _, m := range s.members {
		if _, known := m.shape.field(field); known && field != "" {
			return fmt.Errorf("KeepRest: kind %s has a field %s of its own", m.kind.Name, field)
		}
	}
	s.rest = field
	return nil
}

// keeper is the kind whose one record keeps the rest of the other version's records; ok is
// false for a side of maps alone, whose records may go to other groups.
func (s side) keeper() (m member, ok bool) {
	i := slices.IndexFunc(s.members, func(m member) bool { return !m.many })
	if i < 0 {
		return member{}, false
	}
	return s.members[i], true
}

// restOfRecord is what a record holds beyond what its type knows.
type restOfRecord struct {
	Kind   string        `bson:"kind"`
	Key    bson.RawValue `bson:"key"`
	Fields bson.Raw      `bson:"fields"`
}

// carry takes the rest of the source's records along, in the record of the target that
// keeps it, and gives those of the target what the source has kept for them. Where the
// source has no record that could keep it, the target's records stay as they are.
func carry(from, to side, src transform.Group, recs []record.Record) ([]record.Record, error) {
	var out, back []restOfRecord
	_, gives := from.keeper()
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
			o.remove(kept)
			if err := kept.val.Unmarshal(&back); err != nil {
				return nil, fmt.Errorf("%s %s: %s is not what a group keeps: %w", r.Kind, r.Key, from.rest, err)
			}
		}
		if m.rest {
			continue // a field of type Rest has them, and the functions of the group
		}
		o.elems = slices.DeleteFunc(o.elems, func(e *element) bool {
			_, known := m.shape.field(string(e.name))
			return known || string(e.name) == "_id"
		})
		if len(o.elems) > 0 {
			out = append(out, restOfRecord{r.Kind, r.Key.Value(), o.encode(nil)})
		}
	}
	slices.SortFunc(out, func(a, b restOfRecord) int {
		if c := strings.Compare(a.Kind, b.Kind); c != 0 {
			return c
		}
		return record.CompareValues(a.Key, b.Key)
	})
	keeper, keeps := to.keeper()
	placed := !keeps || len(out) == 0
	for i, r := range recs {
		m := to.member(r.Kind)
		o, err := open(r.Doc)
		if err != nil {
			return nil, err
		}
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

// restore gives a record the fields that its type does not know: those that were kept for
// it, each in its place where it has one, and no others.
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
		_, known := m.shape.field(string(e.name))
		if known || string(e.name) == "_id" || string(e.name) == restField {
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
	for _, e := range kept.elems {
		if in, err := o.find(string(e.name)); err != nil || in != nil {
			return fmt.Errorf("field %s was unknown when it was kept, and is known now", e.name)
		}
		elems = append(elems, e)
	}
	o.elems = elems
	return nil
}

// keep sets the field that holds the rest of other records, or removes it.
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
	e.val, e.sub = bson.RawValue{Type: bson.TypeArray, Value: list}, nil
	return nil
}
