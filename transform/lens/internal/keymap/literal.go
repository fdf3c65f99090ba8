package keymap

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/scalar"
)

// Unwritten reports whether requests have no literals for the _ids of the source. up selects the
// source as in Way.
func (k *Keys) Unwritten(up bool) bool {
	f, _ := Way{k, up}.Source()
	return f.Document || f.Parts[0].Alone == scalar.IDAny || f.Parts[0].Alone == scalar.IDUUID
}

// Keeps reports whether an _id is no key of the source, or has no counterpart in the target. An
// optional reference then keeps the value.
func (k Way) Keeps(id bson.RawValue) bool {
	_, err := k.ID(id, scalar.ReadKey)
	return err != nil
}

// IdOf returns the _id that a literal of a request means. The literal is a name, the text of an
// objectId, a number or a time, depending on the form. It returns false if no _id equals the
// literal, or requests cannot write such _ids.
func (f *Form) IdOf(literal any) (bson.RawValue, bool) {
	if f.Document {
		return bson.RawValue{}, false
	}
	t := f.Parts[0].Alone
	var text string
	switch v := literal.(type) {
	case string:
		if f.Textual() {
			typ, val := scalar.IDString.AppendTo(nil, v)
			return bson.RawValue{Type: typ, Value: val}, true
		}
		// A string never equals a number or a date.
		if text = v; t.IsNumber() || t == scalar.IDDate {
			return bson.RawValue{}, false
		}
	case time.Time:
		// A date has milliseconds, so a finer time equals none.
		if text = scalar.TimeText(v.UnixMilli()); t != scalar.IDDate || !v.Equal(v.Truncate(time.Millisecond)) {
			return bson.RawValue{}, false
		}
	default:
		n, ok := scalar.Rational(v)
		if !ok || !t.IsNumber() || !n.IsInt() {
			return bson.RawValue{}, false
		}
		text = n.Num().String()
	}
	if t == scalar.IDAny || t == scalar.IDUUID || t.Check(text) != nil {
		return bson.RawValue{}, false
	}
	typ, val := t.AppendTo(nil, text)
	return bson.RawValue{Type: typ, Value: val}, true
}
