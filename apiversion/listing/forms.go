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

// forms says which values of documents are read as a value of one field, for a reader that finds
// documents by an index of a database. Values that a database regards as equal, as it does all
// numbers of one worth, are one.
type forms struct {
	fd       protoreflect.FieldDescriptor // of the single value: of a wrapper its only field
	presence bool                         // absent is not the zero value
	nested   bool                         // a message on the way to the field may be absent
	time     bool
	aliases  bool // a value of the enum has more than one name
}

// segment is a part of the values that a field may have: some values, or those of one type that are
// greater than Above and less than Below. The zero below: all that are greater.
type segment struct {
	points       []bson.RawValue
	above, below bson.RawValue
}

// formsOf returns the forms of a field of messages. ok is false for one whose documents hold a value
// in forms that no list of values has.
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
			return out, false // a document has these in forms of their own
		}
	}
	out = forms{fd: f.fd, presence: f.fd.HasPresence(), nested: len(f.steps) > 1}
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
	case bytesType, otherType: // binary of any subtype is bytes
		return out, false
	case floatType:
		return out, out.fd.Kind() == protoreflect.DoubleKind // many doubles are one float
	}
	return out, true
}

// decimalZero is the high half of a decimal128 that is an integer below 2^64, as protodoc has it.
const decimalZero = uint64(6176) << 49

var absent = bson.RawValue{Type: bson.TypeNull}

// equal returns all values that may be read as x: as ValueOf has it, nil for a field that is
// not set. There may be more: what is found is to be looked at. ok is false where it is not certain
// that these are all.
func (f forms) equal(x any) (values []bson.RawValue, ok bool) {
	switch x := x.(type) {
	case nil:
		return []bson.RawValue{absent}, true
	case string:
		if f.fd.Kind() == protoreflect.EnumKind {
			return f.enum(x)
		}
		values = []bson.RawValue{text(x)}
		if x == "" {
			values = append(values, absent)
		}
		return values, f.fd.Kind() == protoreflect.StringKind
	case int64:
		values = []bson.RawValue{{Type: bson.TypeInt64, Value: bsoncore.AppendInt64(nil, x)}}
		ok = x == 0
	case uint64:
		values = []bson.RawValue{{Type: bson.TypeInt64, Value: bsoncore.AppendInt64(nil, int64(x))}}
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
		if x.Nanosecond()%int(time.Millisecond) != 0 {
			return nil, false
		}
		return []bson.RawValue{date(x.UnixMilli())}, true
	default:
		return nil, false
	}
	if ok { // zero
		values = append(values, absent)
	}
	return values, true
}

func (f forms) enum(name string) (values []bson.RawValue, ok bool) {
	d := f.fd.Enum()
	n, err := strconv.ParseInt(name, 10, 32)
	number := protoreflect.EnumNumber(n)
	if v := d.Values().ByName(protoreflect.Name(name)); v != nil {
		number = v.Number()
	} else if err != nil {
		return nil, false
	}
	for _, name := range protodoc.ValueNames(d, number) {
		values = append(values, text(name))
	}
	values = append(values, bson.RawValue{Type: bson.TypeInt32, Value: bsoncore.AppendInt32(nil, int32(number))})
	if number == 0 {
		values = append(values, absent)
	}
	return values, true
}

// order returns the segments of all values in the order in which lists sort them, from the least.
// ok is false for a field of which some documents would be in another order.
func (f forms) order() (segments []segment, ok bool) {
	unset := segment{points: []bson.RawValue{absent}}
	if f.time {
		return []segment{unset, {above: date(math.MinInt64)}}, true
	}
	if f.nested && !f.presence || f.aliases {
		return nil, false // an absent message is less than an absent field, and both are null
	}
	points := func(values ...bson.RawValue) segment { return segment{points: values} }
	least := double(math.Inf(-1))
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

// odd returns a segment in which no document may be, if there is one: what is there can be read,
// and neither equal nor order has it.
func (f forms) odd(ordered bool) (s segment, ok bool) {
	switch {
	case f.time: // as texts, which have another order, and many for one time
		return segment{above: text("")}, true
	case ordered && f.fd.Kind() == protoreflect.EnumKind: // as numbers
		return segment{above: double(math.Inf(-1))}, true
	default:
		return s, false
	}
}

// zero is the value of a field that is not set, as ValueOf has it.
func (f forms) zero() any { return ValueOf(f.fd, f.fd.Default()) }

// has reports whether a value is in a segment.
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
