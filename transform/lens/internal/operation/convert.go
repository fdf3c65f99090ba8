package operation

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// Convert changes the type of a value. Absent and null fields stay. It refuses a value of another
// type than From, and a value that would not come back.
type Convert struct {
	Field    edit.Path
	From, To scalar.Type
	// Rounding makes all dates of one second the same epoch. The side with dates keeps their
	// milliseconds.
	Rounding bool
}

func (o *Convert) String() string {
	return fmt.Sprintf("convert %s from %s to %s", o.Field, o.From, o.To)
}
func (o *Convert) Inverse() Op                         { return &Convert{o.Field, o.To, o.From, o.Rounding} }
func (o *Convert) Takes() []edit.Path                  { return nil }
func (o *Convert) Makes() []edit.Path                  { return nil }
func (o *Convert) Changes() []edit.Path                { return []edit.Path{o.Field} }
func (o *Convert) Trace(p edit.Path) (edit.Path, Fate) { return TraceConvert(p, o.Field) }

// TraceConvert is the Trace of an operation that changes the value of a field.
func TraceConvert(p, field edit.Path) (edit.Path, Fate) {
	if p.Overlaps(field) {
		return p, Converted
	}
	return p, kept
}

func (o *Convert) Apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.Field)
	if err != nil || i < 0 || n.Elems[i].Type == bson.TypeNull {
		return err
	}
	// A number has no single BSON type, so it has its own rules.
	if o.From == scalar.Number || o.To == scalar.Number {
		return o.applyNumber(n, i)
	}
	el := &n.Elems[i]
	if el.Type != o.From.BSON() {
		return edit.Refuse(o.Field, "is of type %s, not %s", edit.TypeName(el.Type), o.From)
	}
	was := el.Val
	if o.Rounding && o.From == scalar.Date {
		was = wholeSecond(was)
	}
	val, err := scalar.Convert(e, was, o.From, o.To)
	// The general error would not name the cause or the remedy.
	if err != nil && o.From == scalar.Date && o.To == scalar.Epoch {
		err = errFraction
	}
	if err != nil {
		return edit.Refuse(o.Field, "is %s (%s): %w", edit.Show(el.Type, el.Val), edit.TypeName(el.Type), err)
	}
	n.Set(i, o.To.BSON(), val)
	return nil
}

// errFraction is the reason why a date has no epoch.
var errFraction = errors.New("it has milliseconds, which an epoch lacks: declare epochMillis, or rounding: seconds")

// wholeSecond returns a date without its milliseconds. It rounds down, also before 1970.
func wholeSecond(date []byte) []byte {
	ms := int64(binary.LittleEndian.Uint64(date))
	return scalar.AppendLong(nil, ms-(ms%1000+1000)%1000)
}

// Table replaces values by a table, in which each value has exactly one counterpart. Absent and
// null fields stay. It refuses a value that the table does not have.
type Table struct {
	Field            edit.Path
	There, Back      map[string]bson.RawValue // from a value to its counterpart; the key is the type byte, then the bytes
	Known, KnownBack string                   // the keys of There and of Back, as text for errors
}

func (o *Table) String() string { return fmt.Sprintf("convert %s by table", o.Field) }
func (o *Table) Inverse() Op {
	return &Table{o.Field, o.Back, o.There, o.KnownBack, o.Known}
}
func (o *Table) Takes() []edit.Path                  { return nil }
func (o *Table) Makes() []edit.Path                  { return nil }
func (o *Table) Changes() []edit.Path                { return []edit.Path{o.Field} }
func (o *Table) Trace(p edit.Path) (edit.Path, Fate) { return TraceConvert(p, o.Field) }

func (o *Table) Apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.Field)
	if err != nil || i < 0 || n.Elems[i].Type == bson.TypeNull {
		return err
	}
	el := &n.Elems[i]
	// Most values fit, so the lookup does not allocate.
	var buf [64]byte
	key := append(append(buf[:0], byte(el.Type)), el.Value()...)
	v, ok := o.There[string(key)]
	if !ok {
		return edit.Refuse(o.Field, "is %s (%s), which the table lacks; it has %s",
			edit.Show(el.Type, el.Value()), edit.TypeName(el.Type), o.Known)
	}
	n.Set(i, v.Type, v.Value)
	return nil
}

// Forms returns the field if its value can have several forms: a number, a decimal made from a
// number (5 and 5.00 are the same), or a date with rounding.
func (o *Convert) Forms() []form {
	if o.Rounding && o.To == scalar.Date || o.To == scalar.Number || o.From == scalar.Number && o.To == scalar.Decimal {
		return []form{{Fields: []Holding{{Path: o.Field, By: o}}}}
	}
	return nil
}

// applyNumber is Apply for a conversion from or to number.
func (o *Convert) applyNumber(n *edit.Node, i int) error {
	el := &n.Elems[i]
	if o.From != scalar.Number {
		if el.Type != o.From.BSON() {
			return edit.Refuse(o.Field, "is of type %s, not %s", edit.TypeName(el.Type), o.From)
		}
		t, val, ok := scalar.ToNumber(o.From, el.Val)
		if !ok {
			return edit.Refuse(o.Field, "is %s (%s): %w", edit.Show(el.Type, el.Val), edit.TypeName(el.Type), scalar.ErrInexact)
		}
		n.Set(i, t.BSON(), val)
		return nil
	}
	if !scalar.IsNumber(el.Type) {
		return edit.Refuse(o.Field, "is of type %s, not a number", edit.TypeName(el.Type))
	}
	val, err := scalar.FromNumber(scalar.TypeOf(el.Type), el.Val, o.To)
	if err != nil {
		return edit.Refuse(o.Field, "is %s (%s): %w", edit.Show(el.Type, el.Val), edit.TypeName(el.Type), err)
	}
	n.Set(i, o.To.BSON(), val)
	return nil
}

var _ former = (*Convert)(nil)
