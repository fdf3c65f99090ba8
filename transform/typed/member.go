package typed

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// decode fills a struct with the records of a group.
func (s side) decode(g transform.Group, into reflect.Value) error {
	if s.name >= 0 {
		name, _ := record.Key(g.Name).Name()
		into.Field(s.name).SetString(name)
	}
	for _, m := range s.members {
		// User functions must be able to write to a map without creating it.
		if m.many {
			into.Field(m.field).Set(reflect.MakeMap(into.Field(m.field).Type()))
		}
	}
	for _, r := range g.Records {
		i := slices.IndexFunc(s.members, func(m member) bool { return m.kind.Name == r.Kind })
		if i < 0 {
			return fmt.Errorf("%s %s: not a kind of %s", r.Kind, r.Key, into.Type())
		}
		m, f := s.members[i], into.Field(s.members[i].field)
		v, err := m.codec.decode(r.Doc)
		if err != nil {
			return fmt.Errorf("%s %s: %w", r.Kind, r.Key, err)
		}
		if !m.many {
			// A second record would silently replace the first.
			if !f.IsNil() {
				return fmt.Errorf("%s: a group has one record, not also %s", r.Kind, r.Key)
			}
			f.Set(v)
			continue
		}
		name, err := m.nameIn(r.Key)
		if err != nil {
			return fmt.Errorf("%s %s: %w", r.Kind, r.Key, err)
		}
		f.SetMapIndex(reflect.ValueOf(name).Convert(f.Type().Key()), v)
	}
	return nil
}

// nameIn returns the map key of a record.
func (m member) nameIn(k record.Key) (string, error) {
	if m.content == nil {
		_, name, err := m.key.match(k)
		return name, err
	}
	name, ok := k.Name()
	if !ok {
		return "", errors.New("its key is not a string")
	}
	return name, nil
}

// encode returns the records of a struct, merged into the records that the target holds.
func (s side) encode(group string, v reflect.Value, have transform.Group) ([]record.Record, error) {
	name, _ := record.Key(group).Name()
	var out []record.Record
	add := func(m member, key string, v reflect.Value) error {
		doc, err := m.codec.encode(v)
		if err != nil {
			return fmt.Errorf("%s %s: %w", m.kind.Name, key, err)
		}
		r := record.Record{Kind: m.kind.Name, Key: record.StringKey(key)}
		var held bson.Raw
		for _, h := range have.Records {
			if h.Kind == r.Kind && h.Key == r.Key {
				held = h.Doc
			}
		}
		if r.Doc, err = m.over(held, doc, v, r.Key); err != nil {
			return fmt.Errorf("%s %s: %w", m.kind.Name, key, err)
		}
		out = append(out, r)
		return nil
	}
	for _, m := range s.members {
		f := v.Field(m.field)
		if !m.many {
			if f.IsNil() {
				continue
			}
			if err := add(m, m.key.begin(name), f); err != nil {
				return nil, err
			}
			continue
		}
		for it := f.MapRange(); it.Next(); {
			key := it.Key().String()
			if m.content == nil {
				// Such a key would be the bare prefix, in which match finds no record name.
				if key == "" {
					return nil, fmt.Errorf("%s: a record of group %s has no name", m.kind.Name, name)
				}
				key = m.key.begin(name) + key + m.key.after
			}
			if err := add(m, key, it.Value()); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// over merges an encoded record into the record that the target holds. Fields that the type does
// not know stay, and fields with an unchanged value keep their bytes.
func (m member) over(held, doc bson.Raw, v reflect.Value, key record.Key) (bson.Raw, error) {
	if held != nil {
		merged, ok, err := m.codec.merge(held, v)
		if err != nil {
			return nil, fmt.Errorf("complement: %w", err)
		}
		if ok {
			doc, held = merged, nil // the codec has kept all other fields of held
		}
	}
	made, err := open(doc)
	if err != nil {
		return nil, err
	}
	id, err := made.find("_id")
	if err != nil {
		return nil, err
	}
	if id == nil {
		id = &element{name: []byte("_id")}
		made.elems = slices.Insert(made.elems, 0, id)
	} else if s, ok := id.val.StringValueOK(); !ok || s != "" && record.StringKey(s) != key {
		return nil, fmt.Errorf("its _id is %s", id.val)
	}
	// A struct without _id, or with an empty one, gets the key that follows from its group.
	id.val = key.Value()
	if held == nil {
		return made.encode(nil), nil
	}
	// Compare fields as the codec encodes them. The held document may have the same value in another
	// encoding, and then keeps it.
	before, err := m.codec.decode(held)
	if err != nil {
		return nil, fmt.Errorf("complement: %w", err)
	}
	again, err := m.codec.encode(before)
	if err != nil {
		return nil, fmt.Errorf("complement: %w", err)
	}
	was, err := open(held)
	if err != nil {
		return nil, fmt.Errorf("complement: %w", err)
	}
	out := &object{}
	for _, h := range was.elems {
		now, err := made.find(string(h.name))
		if err != nil {
			return nil, err
		}
		// A held field stays if its value has not changed, if the type does not know it, or if the
		// encoder leaves it out. Otherwise the user's function has removed it.
		known := slices.Contains(m.fields, string(h.name))
		before := again.Lookup(string(h.name))
		switch {
		case now != nil && (string(h.name) == "_id" || !before.Equal(now.val)):
			out.elems = append(out.elems, now)
		case now != nil, !known && !m.rest, known && before.Type == 0:
			out.elems = append(out.elems, h)
		}
	}
	for _, e := range made.elems {
		if in, err := was.find(string(e.name)); err != nil {
			return nil, err
		} else if in == nil {
			out.elems = append(out.elems, e)
		}
	}
	return out.encode(nil), nil
}
