package protodoc

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// wellKnown is a message type of google.protobuf that has its own BSON form.
type wellKnown int

const (
	none wellKnown = iota
	timestampKind
	durationKind
	wrapperKind
	structKind
	valueKind
	listValueKind
)

// wellKnownOf returns none for all other messages, including other types of google.protobuf.
func wellKnownOf(d protoreflect.MessageDescriptor) wellKnown {
	name, ok := strings.CutPrefix(string(d.FullName()), "google.protobuf.")
	if !ok {
		return none
	}
	switch name {
	case "Timestamp":
		return timestampKind
	case "Duration":
		return durationKind
	// Wrappers are stored as the value itself, so a query need not know about them.
	case "BoolValue", "StringValue", "BytesValue", "Int32Value", "Int64Value", "UInt32Value", "UInt64Value", "FloatValue", "DoubleValue":
		return wrapperKind
	case "Struct":
		return structKind
	case "Value":
		return valueKind
	case "ListValue":
		return listValueKind
	default:
		return none
	}
}

// Field numbers of Timestamp and Duration. onlyField is the single field of wrappers, Struct and
// ListValue.
const (
	secondsField = 1
	nanosField   = 2
	onlyField    = 1
)

// appendWellKnown appends a well-known message other than a Struct.
func appendWellKnown(dst []byte, k wellKnown, m protoreflect.Message, depth int) ([]byte, bsoncore.Type, error) {
	if depth > maxDepth {
		return nil, 0, errDepth
	}
	if err := checkKnown(m); err != nil {
		return nil, 0, err
	}
	fields := m.Descriptor().Fields()
	only := fields.ByNumber(onlyField)
	switch k {
	case timestampKind:
		t, err := timeOf(m)
		if err != nil {
			return nil, 0, err
		}
		// A BSON date has milliseconds. Finer times would lose digits, so they become text.
		if t.Nanosecond()%int(time.Millisecond) == 0 {
			return bsoncore.AppendDateTime(dst, t.UnixMilli()), bsoncore.TypeDateTime, nil
		}
		return bsoncore.AppendString(dst, t.Format(time.RFC3339Nano)), bsoncore.TypeString, nil
	case durationKind:
		s, err := durationText(m.Get(fields.ByNumber(secondsField)).Int(), m.Get(fields.ByNumber(nanosField)).Int())
		return bsoncore.AppendString(dst, s), bsoncore.TypeString, err
	case wrapperKind:
		return appendValue(dst, only, m.Get(only), depth)
	case listValueKind:
		dst, err := appendList(dst, only, m.Get(only).List(), depth)
		return dst, bsoncore.TypeArray, err
	case valueKind:
		set := m.WhichOneof(m.Descriptor().Oneofs().Get(0))
		switch {
		// An empty Value has no BSON form: null is a value of its own.
		case set == nil:
			return nil, 0, failf("a google.protobuf.Value has no value")
		case set.Kind() == protoreflect.EnumKind:
			return dst, bsoncore.TypeNull, nil
		}
		return appendValue(dst, set, m.Get(set), depth-1) // the Value adds no level
	default:
		return nil, 0, failf("%s is not supported", m.Descriptor().FullName())
	}
}

// Seconds allowed by protobuf: years 1 to 9999 for Timestamp, about 10,000 years for Duration.
const (
	minSeconds  = -62135596800
	maxSeconds  = 253402300799
	maxDuration = 315576000000
)

// timeOf returns the time of a Timestamp.
func timeOf(m protoreflect.Message) (time.Time, error) {
	fields := m.Descriptor().Fields()
	s, n := m.Get(fields.ByNumber(secondsField)).Int(), m.Get(fields.ByNumber(nanosField)).Int()
	if s < minSeconds || s > maxSeconds || n < 0 || n >= int64(time.Second) {
		return time.Time{}, failf("the timestamp is not one of the years 1 to 9999")
	}
	return time.Unix(s, n).UTC(), nil
}

// setTime sets a Timestamp.
func setTime(m protoreflect.Message, t time.Time) error {
	if s := t.Unix(); s < minSeconds || s > maxSeconds {
		return failf("the time is not one of the years 1 to 9999")
	}
	setPair(m, t.Unix(), int32(t.Nanosecond()))
	return nil
}

// setPair sets the seconds and nanos of a Timestamp or Duration.
func setPair(m protoreflect.Message, seconds int64, nanos int32) {
	fields := m.Descriptor().Fields()
	m.Set(fields.ByNumber(secondsField), protoreflect.ValueOfInt64(seconds))
	m.Set(fields.ByNumber(nanosField), protoreflect.ValueOfInt32(nanos))
}

// durationText formats a duration as protobuf's JSON does.
func durationText(s, n int64) (string, error) {
	if s < -maxDuration || s > maxDuration || n <= -int64(time.Second) || n >= int64(time.Second) || s > 0 && n < 0 || s < 0 && n > 0 {
		return "", failf("the duration is out of range")
	}
	// Format the absolute value: Go would put a second sign before the nanos.
	sign := ""
	if s < 0 || n < 0 {
		sign, s, n = "-", -s, -n
	}
	text := fmt.Sprintf("%s%d.%09d", sign, s, n)
	// Protobuf's JSON has 0, 3, 6 or 9 digits.
	for range 3 {
		if cut, ok := strings.CutSuffix(text, "000"); ok {
			text = cut
		}
	}
	return strings.TrimSuffix(text, ".") + "s", nil
}

// parseDuration is the inverse of durationText. It accepts any number of digits up to 9.
func parseDuration(text string) (seconds int64, nanos int32, err error) {
	bad := failf("%d characters that are not a duration such as \"1.5s\"", len(text))
	body, ok := strings.CutSuffix(text, "s")
	whole, fraction, point := strings.Cut(strings.TrimPrefix(body, "-"), ".")
	if !ok || whole == "" || len(fraction) > 9 || point && fraction == "" || strings.ContainsAny(whole+fraction, "+-") {
		return 0, 0, bad
	}
	s, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return 0, 0, bad
	}
	// Pad to nanoseconds.
	n, err := strconv.ParseInt((fraction + "000000000")[:9], 10, 32)
	if err != nil {
		return 0, 0, bad
	}
	// Both parts carry the sign, as protobuf requires.
	if strings.HasPrefix(body, "-") {
		s, n = -s, -n
	}
	if _, err := durationText(s, n); err != nil {
		return 0, 0, err
	}
	return s, int32(n), nil
}
