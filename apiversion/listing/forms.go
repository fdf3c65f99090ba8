package listing

import (
	"math"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/record"
)

// forms lists the stored values that decode to a given value of one field. A reader that searches
// by a database index needs them all, because several stored values can mean the same. Values that
// the database regards as equal count as one, such as numbers of different types.
type forms struct {
	fd       protoreflect.FieldDescriptor // the single value's field; inside a wrapper, its only field
	presence bool                         // an absent field differs from a zero value
	nested   bool                         // a message on the path may be absent
	time     bool
	aliases  bool // some enum value has several names
}

// segment is a part of the possible values of a field, in index order. It is either a list of
// points, or all values of one type between above and below, exclusive. A zero below means no upper
// bound.
type segment struct {
	points       []bson.RawValue
	above, below bson.RawValue
}

// formsOf returns the forms of a field. ok is false if no complete list of stored values exists.
func (f *field) formsOf(d protoreflect.MessageDescriptor) (out forms, ok bool) {
	if f.shape != single || f.many {
		return out, false
	}
	for i, s := range f.steps {
		fd := d.Fields().ByName(s.name)
		if fd == nil || fd.IsMap() || protodoc.Aliased(fd) {
			return out, false
		}
		if d = fd.Message(); i < len(f.steps)-1 && (d == nil || d.ParentFile().Package() == "google.protobuf") {
			return out, false // well-known types are not stored as documents of fields
		}
	}
	out = forms{fd: f.fd, presence: f.fd.HasPresence(), nested: len(f.steps) > 1}
	// The document holds the wrapped value itself.
	if d := f.fd.Message(); d != nil && isWrapper(d) {
		out.fd = d.Fields().ByNumber(1)
	}
	switch typeOf(out.fd) {
	case timeType:
		out.time = true
	case enumType:
		values := out.fd.Enum().Values()
		for i := range values.Len() {
			out.aliases = out.aliases || len(protodoc.ValueNames(out.fd.Enum(), values.Get(i).Number())) > 1
		}
	case bytesType, otherType: // binary of any subtype decodes to the same bytes
		return out, false
	case floatType:
		return out, out.fd.Kind() == protoreflect.DoubleKind // many doubles decode to one float
	}
	return out, true
}

// decimalZero is the high half of a decimal128 that holds an integer below 2^64, as protodoc writes
// it.
const decimalZero = uint64(6176) << 49

// absent is the index value of a missing field. The database indexes it as null.
var absent = bson.RawValue{Type: bson.TypeNull}

// equal returns the stored values that may decode to x, a value as ValueOf returns it. nil stands
// for an unset field. The list may contain values that decode to something else, so the caller must
// check each record. ok is false if the list may be incomplete.
func (f forms) equal(x any) (values []bson.RawValue, ok bool) {
	switch x := x.(type) {
	case nil:
		return []bson.RawValue{absent}, true
	case string:
		if f.fd.Kind() == protoreflect.EnumKind {
			return f.enum(x)
		}
		values = []bson.RawValue{text(x)}
		// A missing field may decode to the empty string.
		if x == "" {
			values = append(values, absent)
		}
		return values, f.fd.Kind() == protoreflect.StringKind
	case int64:
		values = []bson.RawValue{{Type: bson.TypeInt64, Value: bsoncore.AppendInt64(nil, x)}}
		ok = x == 0
	case uint64:
		values = []bson.RawValue{{Type: bson.TypeInt64, Value: bsoncore.AppendInt64(nil, int64(x))}}
		// protodoc writes these as decimals, since int64 cannot hold them.
		if x > math.MaxInt64 {
			values = []bson.RawValue{{Type: bson.TypeDecimal128, Value: bsoncore.AppendDecimal128(nil, decimalZero, x)}}
		}
		ok = x == 0
	case float64:
		if math.IsNaN(x) {
			return []bson.RawValue{double(x)}, true
		}
		values = []bson.RawValue{double(x)}
		ok = x == 0
	case bool:
		values = []bson.RawValue{boolean(x)}
		ok = !x
	case time.Time:
		// A date has milliseconds only. Finer times are stored as text, in many forms for one time.
		if x.Nanosecond()%int(time.Millisecond) != 0 {
			return nil, false
		}
		return []bson.RawValue{date(x.UnixMilli())}, true
	default:
		return nil, false
	}
	if ok { // a missing field decodes to zero
		values = append(values, absent)
	}
	return values, true
}

// enum returns the stored values of an enum value, given by name or by number.
func (f forms) enum(name string) (values []bson.RawValue, ok bool) {
	d := f.fd.Enum()
	n, err := strconv.ParseInt(name, 10, 32)
	number := protoreflect.EnumNumber(n)
	if v := d.Values().ByName(protoreflect.Name(name)); v != nil {
		number = v.Number()
	} else if err != nil {
		return nil, false
	}
	// Documents may hold an alias, or the number of a value that had no name when it was written.
	for _, name := range protodoc.ValueNames(d, number) {
		values = append(values, text(name))
	}
	values = append(values, bson.RawValue{Type: bson.TypeInt32, Value: bsoncore.AppendInt32(nil, int32(number))})
	if number == 0 {
		values = append(values, absent)
	}
	return values, true
}

// order returns the segments of all values in the order of lists, least first. ok is false if the
// index would sort some documents differently.
func (f forms) order() (segments []segment, ok bool) {
	unset := segment{points: []bson.RawValue{absent}}
	if f.time {
		return []segment{unset, {above: date(math.MinInt64)}}, true
	}
	if f.nested && !f.presence || f.aliases {
		return nil, false // absent messages sort before absent fields, but the index has null for both
	}
	points := func(values ...bson.RawValue) segment { return segment{points: values} }
	least := double(math.Inf(-1))
	// Missing fields sort as zero, but the index puts them with null. They need a segment of their
	// own.
	zero, _ := f.equal(f.zero())
	switch f.fd.Kind() {
	case protoreflect.StringKind:
		if f.presence {
			return []segment{unset, points(text("")), {above: text("")}}, true
		}
		return []segment{points(zero...), {above: text("")}}, true
	case protoreflect.EnumKind:
		if f.presence {
			return []segment{unset, {above: text("")}}, true
		}
		// Enums sort by name, so the zero value stands somewhere in the middle.
		name, named := f.zero().(string)
		if !named {
			return nil, false
		}
		return []segment{{above: text(""), below: text(name)}, points(zero...), {above: text(name)}}, true
	case protoreflect.BoolKind:
		if f.presence {
			return []segment{unset, points(boolean(false)), points(boolean(true))}, true
		}
		return []segment{points(zero...), points(boolean(true))}, true
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		// Lists sort NaN first, as the database does.
		nan := points(double(math.NaN()))
		if f.presence {
			return []segment{unset, nan, points(least), {above: least}}, true
		}
		return []segment{nan, points(least), {above: least, below: double(0)}, points(zero...), {above: double(0)}}, true
	default: // integers
		if f.presence {
			return []segment{unset, {above: least}}, true
		}
		return []segment{{above: least, below: double(0)}, points(zero...), {above: double(0)}}, true
	}
}

// odd returns a segment that must be empty for the index to be usable. Its documents decode, but
// neither equal nor order covers them. ok is false if there is no such segment. ordered is true for
// an order, false for a comparison.
func (f forms) odd(ordered bool) (s segment, ok bool) {
	switch {
	case f.time: // times stored as text sort differently, and have many forms
		return segment{above: text("")}, true
	case ordered && f.fd.Kind() == protoreflect.EnumKind: // enum values stored as numbers
		return segment{above: double(math.Inf(-1))}, true
	default:
		return s, false
	}
}

// zero returns the value of an unset field, as ValueOf returns it.
func (f forms) zero() any { return ValueOf(f.fd, f.fd.Default()) }

// has reports whether a value lies in the segment.
func (s segment) has(v bson.RawValue) bool {
	if s.points != nil {
		return slices.ContainsFunc(s.points, func(p bson.RawValue) bool { return record.CompareValues(p, v) == 0 })
	}
	return record.SameType(s.above, v) && record.CompareValues(v, s.above) > 0 && (s.below.Type == 0 || record.CompareValues(v, s.below) < 0)
}

func text(s string) bson.RawValue {
	return bson.RawValue{Type: bson.TypeString, Value: bsoncore.AppendString(nil, s)}
}

func double(x float64) bson.RawValue {
	return bson.RawValue{Type: bson.TypeDouble, Value: bsoncore.AppendDouble(nil, x)}
}

func date(ms int64) bson.RawValue {
	return bson.RawValue{Type: bson.TypeDateTime, Value: bsoncore.AppendDateTime(nil, ms)}
}

func boolean(b bool) bson.RawValue {
	return bson.RawValue{Type: bson.TypeBoolean, Value: bsoncore.AppendBoolean(nil, b)}
}
