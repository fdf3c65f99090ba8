package typed

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// edit transforms one document along a way.
type edit struct {
	*way
	src  bson.Raw
	o    *object
	have *object // nil if the target holds no record
}

// document transforms src. have is the record that the target holds, or nil, and key is the key of
// the result.
func (w *way) document(src, have bson.Raw, key record.Key) (bson.Raw, error) {
	e := edit{way: w, src: src}
	var err error
	if e.o, err = open(src); err != nil {
		return nil, err
	}
	if have != nil {
		if e.have, err = open(have); err != nil {
			return nil, fmt.Errorf("complement: %w", err)
		}
	}
	// A rule would overwrite such a field, and the way back would not restore it.
	for _, p := range w.foreign {
		if _, found, err := e.o.lookup(p); err != nil || found != nil {
			return nil, errors.Join(err, fmt.Errorf("field %s belongs to the other version", p))
		}
	}
	if w.names != nil {
		// Set the new _id before a function of Whole decodes the record.
		id, err := e.o.find("_id")
		if err != nil || id == nil {
			return nil, errors.Join(err, errors.New("no _id"))
		}
		id.val = key.Value()
	}
	if err := e.changed(); err != nil {
		return nil, err
	}
	if err := e.complement(); err != nil {
		return nil, err
	}
	// Whole gets a record with all other fields set, so it runs after the rules and the complement.
	if w.whole != nil {
		if err := e.runWhole(); err != nil {
			return nil, err
		}
	}
	// Last, because each step before may move fields.
	if e.have != nil {
		if err := e.o.orderAs(e.have); err != nil {
			return nil, fmt.Errorf("complement: %w", err)
		}
	}
	return e.o.encode(make([]byte, 0, len(src)+64)), nil
}

// change is one rule with the values that it read from a document and the values to write.
type change struct {
	rule
	in    []*element // nil for an absent field
	where []*object
	out   []bson.RawValue
}

// changed applies the rules. It reads all values before it writes any, because two rules may swap
// names.
func (e *edit) changed() error {
	var changes []change
	for _, r := range e.rules {
		if len(r.source) == 0 {
			continue
		}
		c := change{rule: r}
		values, there := make([]bson.RawValue, len(r.source)), false
		for i, v := range r.source {
			o, found, err := e.o.lookup(v.path)
			if err != nil {
				return err
			}
			c.in, c.where = append(c.in, found), append(c.where, o)
			if found != nil {
				values[i], there = found.val, true
			}
		}
		// Absent fields stay absent: no function runs for them.
		if !there {
			continue
		}
		c.out = values // unchanged if the rule has no run
		if r.run != nil {
			var err error
			if c.out, err = r.run(values); err != nil {
				return fmt.Errorf("field %s: %w", r.source[0].path, err)
			}
		}
		changes = append(changes, c)
	}
	for _, c := range changes {
		if err := e.write(c); err != nil {
			return err
		}
	}
	// Prune only after all writes, because another rule may have filled an object that was empty.
	for _, c := range changes {
		for _, v := range c.source {
			if err := e.o.prune(v.path, e.to); err != nil {
				return err
			}
		}
	}
	return nil
}

// write replaces the fields that a rule read. If the first target is in the same object as the
// first field found, it takes its place. The other targets follow it.
func (e *edit) write(c change) error {
	var behind *element
	var around *object
	for i, in := range c.in {
		if in == nil {
			continue
		}
		// Taking the old place keeps the order of fields in the document.
		stays := behind == nil && len(c.target) > 0 && slices.Equal(c.source[i].path[:len(c.source[i].path)-1], c.target[0].path[:len(c.target[0].path)-1])
		if stays {
			behind, around = in, c.where[i]
			continue
		}
		c.where[i].remove(in)
	}
	for i, v := range c.target {
		val, keep, err := e.as(c, i)
		if err != nil {
			return err
		}
		name := []byte(v.path[len(v.path)-1])
		switch {
		case i == 0 && behind != nil && keep:
			behind.name, behind.val = name, val
			// encode prefers sub, which is the value before the conversion.
			if c.run != nil {
				behind.sub = nil
			}
			continue
		case i == 0 && behind != nil:
			around.remove(behind)
			continue
		case !keep:
			continue
		}
		o, err := e.o.place(v.path)
		if err != nil {
			return err
		}
		made := &element{name: name, val: val}
		// A moved object may hold changes of other rules. They are in sub, not in val.
		if c.run == nil {
			made.sub = firstOf(c.in).sub
		}
		o.insert(made, behind)
	}
	return nil
}

func firstOf(in []*element) *element {
	return in[slices.IndexFunc(in, func(e *element) bool { return e != nil })]
}

// as returns the value to write for target i. If the target holds an equal value in another
// encoding, such as another integer width, that encoding stays. If a rule has several targets, a
// zero value stays out where the target has no such field; keep is then false. If that would leave
// out all of them, the first one is written.
func (e *edit) as(c change, i int) (val bson.RawValue, keep bool, err error) {
	val = c.out[i]
	if e.have == nil || c.run == nil {
		return val, true, nil
	}
	_, held, err := e.have.lookup(c.target[i].path)
	switch {
	case err != nil:
		return val, false, fmt.Errorf("complement: %w", err)
	case held == nil:
		return val, len(c.target) == 1 || !val.Equal(c.target[i].zero) || i == 0 && e.allLeftOut(c), nil
	case !held.val.Equal(val) && c.target[i].same(held.val, val):
		return held.val, true, nil
	default:
		return val, true, nil
	}
}

// allLeftOut reports whether the target has none of a rule's fields and all their values are zero.
func (e *edit) allLeftOut(c change) bool {
	for i, v := range c.target {
		if _, held, err := e.have.lookup(v.path); err != nil || held != nil || !c.out[i].Equal(v.zero) {
			return false
		}
	}
	return true
}

// complement adds the fields that only the target's version has. It takes them from the target's
// record, or else their defaults if the target has no record.
func (e *edit) complement() error {
	for _, r := range e.rules {
		if !r.held || len(r.target) == 0 {
			continue
		}
		p := r.target[0].path
		var val bson.RawValue
		if e.have != nil {
			_, held, err := e.have.lookup(p)
			if err != nil {
				return fmt.Errorf("complement: %w", err)
			}
			if held == nil {
				continue // the default must not restore a field that the target removed
			}
			val = held.val
		} else if r.def == nil {
			continue
		} else if v, err := encodeValue(r.def); err != nil {
			return err
		} else {
			val = v
		}
		if err := e.set(p, val); err != nil {
			return err
		}
	}
	return nil
}

func (e *edit) set(p path, val bson.RawValue) error {
	o, err := e.o.place(p)
	if err != nil {
		return err
	}
	if at, err := o.find(p[len(p)-1]); err != nil {
		return err
	} else if at != nil {
		at.val, at.sub = val, nil
		return nil
	}
	o.insert(&element{name: []byte(p[len(p)-1]), val: val}, nil)
	return nil
}

func (e *edit) drop(p path) error {
	o, at, err := e.o.lookup(p)
	if err != nil || at == nil {
		return err
	}
	o.remove(at)
	return nil
}

// runWhole calls the user's function for whole records and writes the fields that belong to it.
func (e *edit) runWhole() error {
	// These source fields are not copied. The function reads them from the source record.
	for _, p := range e.opaque {
		if err := e.drop(p); err != nil {
			return err
		}
		if err := e.o.prune(p, e.to); err != nil {
			return err
		}
	}
	// The function starts from the values that the target holds.
	if e.have != nil {
		for _, p := range e.opaqueTarget {
			if _, held, err := e.have.lookup(p); err != nil {
				return fmt.Errorf("complement: %w", err)
			} else if held != nil {
				if err := e.set(p, held.val); err != nil {
					return err
				}
			}
		}
	}
	before, after, err := e.whole(e.src, e.o.encode(nil))
	if err != nil {
		return err
	}
	for _, p := range e.opaqueTarget {
		// Write only the fields that the function changed. An encoder may drop or widen the others.
		was, now := before.Lookup(p...), after.Lookup(p...)
		switch {
		case was.Equal(now): // keeps the bytes that the target holds
		case now.Type == 0:
			err = e.drop(p)
		default:
			err = e.set(p, now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
