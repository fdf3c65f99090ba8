package lens

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// convert changes the type of a value. Absent and null fields stay.
type convert struct {
	field    edit.Path
	from, to scalar.Type
	// rounding maps dates to the epoch's whole second; the dates keep their milliseconds.
	rounding bool
}

func (o *convert) String() string {
	return fmt.Sprintf("convert %s from %s to %s", o.field, o.from, o.to)
}
func (o *convert) inverse() op                         { return &convert{o.field, o.to, o.from, o.rounding} }
func (o *convert) takes() []edit.Path                  { return nil }
func (o *convert) makes() []edit.Path                  { return nil }
func (o *convert) changes() []edit.Path                { return []edit.Path{o.field} }
func (o *convert) trace(p edit.Path) (edit.Path, fate) { return traceConvert(p, o.field) }

func traceConvert(p, field edit.Path) (edit.Path, fate) {
	if p.Overlaps(field) {
		return p, converted
	}
	return p, kept
}

func (o *convert) apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.field)
	if err != nil || i < 0 || n.Elems[i].Type == bson.TypeNull {
		return err
	}
	// A number has no single BSON type, so it has its own rules.
	if o.from == scalar.Number || o.to == scalar.Number {
		return o.applyNumber(n, i)
	}
	el := &n.Elems[i]
	if el.Type != o.from.BSON() {
		return edit.Refuse(o.field, "is of type %s, not %s", edit.TypeName(el.Type), o.from)
	}
	was := el.Val
	if o.rounding && o.from == scalar.Date {
		was = wholeSecond(was)
	}
	val, err := scalar.Convert(e, was, o.from, o.to)
	// The general error would not name the cause or the remedy.
	if err != nil && o.from == scalar.Date && o.to == scalar.Epoch {
		err = errFraction
	}
	if err != nil {
		return edit.Refuse(o.field, "is %s (%s): %w", edit.Show(el.Type, el.Val), edit.TypeName(el.Type), err)
	}
	n.Set(i, o.to.BSON(), val)
	return nil
}

// errFraction is the reason why a date has no epoch.
var errFraction = errors.New("it has milliseconds, which an epoch does not have: declare epochMillis, or rounding: seconds")

// wholeSecond returns a date without its milliseconds. It rounds down, also before 1970.
func wholeSecond(date []byte) []byte {
	ms := int64(binary.LittleEndian.Uint64(date))
	return scalar.AppendLong(nil, ms-(ms%1000+1000)%1000)
}

// table replaces values one for one.
type table struct {
	field            edit.Path
	there, back      map[string]bson.RawValue // by type byte and value
	known, knownBack string                   // the keys of there and of back, for errors
}

func (o *table) String() string { return fmt.Sprintf("convert %s by table", o.field) }
func (o *table) inverse() op {
	return &table{o.field, o.back, o.there, o.knownBack, o.known}
}
func (o *table) takes() []edit.Path                  { return nil }
func (o *table) makes() []edit.Path                  { return nil }
func (o *table) changes() []edit.Path                { return []edit.Path{o.field} }
func (o *table) trace(p edit.Path) (edit.Path, fate) { return traceConvert(p, o.field) }

func (o *table) apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.field)
	if err != nil || i < 0 || n.Elems[i].Type == bson.TypeNull {
		return err
	}
	el := &n.Elems[i]
	// Most values fit, so the lookup does not allocate.
	var buf [64]byte
	key := append(append(buf[:0], byte(el.Type)), el.Value()...)
	v, ok := o.there[string(key)]
	if !ok {
		return edit.Refuse(o.field, "is %s (%s), which the table does not have; it has %s",
			edit.Show(el.Type, el.Value()), edit.TypeName(el.Type), o.known)
	}
	n.Set(i, v.Type, v.Value)
	return nil
}

// forms returns the form of a converted value: a number, a decimal made from one (5 and 5.00 are
// the same), or a date with rounding.
func (o *convert) forms() []form {
	if o.rounding && o.to == scalar.Date || o.to == scalar.Number || o.from == scalar.Number && o.to == scalar.Decimal {
		return []form{{fields: []holding{{path: o.field, by: o}}}}
	}
	return nil
}

// applyNumber is apply for a conversion from or to number.
func (o *convert) applyNumber(n *edit.Node, i int) error {
	el := &n.Elems[i]
	if o.from != scalar.Number {
		if el.Type != o.from.BSON() {
			return edit.Refuse(o.field, "is of type %s, not %s", edit.TypeName(el.Type), o.from)
		}
		t, val, ok := scalar.ToNumber(o.from, el.Val)
		if !ok {
			return edit.Refuse(o.field, "is %s (%s): %w", edit.Show(el.Type, el.Val), edit.TypeName(el.Type), scalar.ErrInexact)
		}
		n.Set(i, t.BSON(), val)
		return nil
	}
	if !scalar.IsNumber(el.Type) {
		return edit.Refuse(o.field, "is of type %s, not a number", edit.TypeName(el.Type))
	}
	val, err := scalar.FromNumber(scalar.TypeOf(el.Type), el.Val, o.to)
	if err != nil {
		return edit.Refuse(o.field, "is %s (%s): %w", edit.Show(el.Type, el.Val), edit.TypeName(el.Type), err)
	}
	n.Set(i, o.to.BSON(), val)
	return nil
}

var _ former = (*convert)(nil)
