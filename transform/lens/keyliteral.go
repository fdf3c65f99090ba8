package lens

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/scalar"
)

// unwritten reports whether requests have no literals for the keys of the source.
func (k *keys) unwritten(up bool) bool {
	f, _ := keyWay{k, up}.source()
	return f.document || f.parts[0].alone == scalar.IDAny || f.parts[0].alone == scalar.IDUUID
}

// keeps reports whether an _id is not a key of the source, so that an optional reference leaves it.
func (k keyWay) keeps(id bson.RawValue) bool {
	_, err := k.id(id, scalar.ReadKey)
	return err != nil
}

// idOf returns the _id that a literal of a request stands for: the text of an objectId, a number or
// a time, depending on the form.
func (f *idForm) idOf(literal any) (bson.RawValue, bool) {
	if f.document {
		return bson.RawValue{}, false
	}
	t := f.parts[0].alone
	var text string
	switch v := literal.(type) {
	case string:
		if f.textual() {
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
