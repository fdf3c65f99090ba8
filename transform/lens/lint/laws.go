package lint

import (
	"errors"
	"fmt"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// law is an index in laws.
type law int

const (
	roundTrip law = iota
	getPut
	putGet
	stable
	deleted
)

// laws lists the checks in the order of the constants.
var laws = []struct{ name, says string }{
	{"round trip", "the reverse returns the old record, also when it is applied over the existing old record"},
	{"get-put", "a change of fields that only the new version has survives going down and up again"},
	{"put-get", "a change made in the new version comes through the old version unchanged, without anything from the existing old record"},
	{"stable", "a result transformed again over itself stays the same, to the byte"},
	{"deleted", "a deleted record leaves nothing in the other version"},
}

// errNotTried means that an invented state does not fit, so the law does not apply.
var errNotTried = errors.New("not tried")

// check tests all laws on a group. x is the sample, y is made from x, and back is made from y.
func (c *checker) check(t *tried, id transform.GroupID, x, y, back []record.Record) {
	// Every law is tested, even if an earlier one is broken: a report should be complete.
	for l, f := range []func() error{
		roundTrip: func() error { return c.roundTrip(t, id, x, y, back) },
		getPut:    func() error { return c.getPut(t, id, x, y) },
		putGet:    func() error { return c.putGet(t, id, x, y) },
		stable:    func() error { return c.stable(id, x, y, back) },
		deleted:   func() error { return c.deleted(id, x, y) },
	} {
		err := f()
		if errors.Is(err, errNotTried) {
			continue
		}
		r := &c.report.Laws[l]
		r.Tried++
		if err == nil {
			continue
		}
		r.Broken++
		if len(r.Examples) < c.Examples {
			r.Examples = append(r.Examples, Example{nameOf(x, t.old), oneLine(err.Error())})
		}
	}
}

func (c *checker) roundTrip(t *tried, id transform.GroupID, x, y, back []record.Record) error {
	// Declared losses are no violation. They are only counted.
	if err := c.lost("up", t.old, t.lostUp, x, back, nameOf(x, t.old)); err != nil {
		return err
	}
	if !c.down.NeedsHave(id) {
		return nil
	}
	// With the complement nothing may be lost.
	over, err := run(c.down, id, y, x)
	return same(over, x, true, err)
}

func (c *checker) getPut(t *tried, id transform.GroupID, x, y []record.Record) error {
	// Edit y first: unchanged defaults would come back even from a lens that loses the fields.
	e := edited(y, t.now, t.lostDown)
	down, err := run(c.down, id, e, nil)
	if err != nil {
		return errNotTried // the invented values do not fit
	}
	again, err := run(c.up, id, down, nil)
	if err != nil {
		return fmt.Errorf("up again: %w", err)
	}
	if err := c.lost("down", t.now, t.lostDown, e, again, nameOf(x, t.old)); err != nil {
		return err
	}
	if !c.up.NeedsHave(id) {
		return nil
	}
	over, err := run(c.up, id, down, e)
	return same(over, e, true, err)
}

// putGet transforms another state of the record down over x. The other state is the previous record
// of the sample, which the application could have written. If that does not fit under this name, it
// is y with edited values.
func (c *checker) putGet(t *tried, id transform.GroupID, x, y []record.Record) error {
	other := edited(y, t.now, t.lostDown)
	if len(x) == 1 && t.before != nil {
		// Under the name of x, so that both states belong to one record.
		if doc := renamed(t.before, x[0].Doc.Lookup("_id")); doc != nil {
			moved := []record.Record{{Kind: x[0].Kind, Key: x[0].Key, Doc: doc}}
			if at, ok, err := groupOf(c.up, moved[0]); ok && err == nil && at == id {
				if made, err := run(c.up, id, moved, nil); err == nil {
					other = made
				}
			}
		}
	}
	// x is the complement, so its other fields must not get into the result.
	down, err := run(c.down, id, other, x)
	if err != nil {
		return errNotTried // two states that do not fit together are refused, not guessed at
	}
	again, err := run(c.up, id, down, other)
	return same(again, other, false, err)
}

func (c *checker) stable(id transform.GroupID, x, y, back []record.Record) error {
	// The engine compares source and target with this transformation. A difference would never end.
	again, err := run(c.up, id, x, y)
	if err := same(again, y, true, err); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	again, err = run(c.down, id, y, back)
	if err := same(again, back, true, err); err != nil {
		return fmt.Errorf("down: %w", err)
	}
	return nil
}

func (c *checker) deleted(id transform.GroupID, x, y []record.Record) error {
	for _, way := range []struct {
		d    transform.Direction
		have []record.Record
	}{{c.up, y}, {c.down, x}} {
		out, err := way.d.Transform(id, transform.Group{Name: id.Name}, transform.Group{Name: id.Name, Records: way.have})
		if err != nil {
			return err
		}
		if len(out) > 0 {
			return fmt.Errorf("%s record %s of %s has no source record", way.d.To(), out[0].Key, out[0].Kind)
		}
	}
	return nil
}

// same returns nil if a result satisfies a law.
func same(got, want []record.Record, toTheByte bool, err error) error {
	if err != nil {
		return err
	}
	if exact(got, want) {
		return nil
	}
	if ds := differences(want, got); len(ds) > 0 {
		return errors.New(ds[0].String())
	}
	if toTheByte {
		return errors.New("the fields have another order")
	}
	return nil
}
