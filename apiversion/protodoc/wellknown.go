package protodoc

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// wellKnown are the messages of google.protobuf that have a form of their own.
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

// The fields of Timestamp and Duration, and the only one of wrappers and lists.
const (
	secondsField = 1
	nanosField   = 2
	onlyField    = 1
)

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
		case set == nil:
			return nil, 0, failf("a google.protobuf.Value has no value")
		case set.Kind() == protoreflect.EnumKind:
			return dst, bsoncore.TypeNull, nil
		}
		return appendValue(dst, set, m.Get(set), depth-1) // the Value itself is no level
	default:
		return nil, 0, failf("%s is not supported", m.Descriptor().FullName())
	}
}

// Bounds of Timestamp, the years 1 to 9999, and of Duration.
const (
	minSeconds  = -62135596800
	maxSeconds  = 253402300799
	maxDuration = 315576000000
)

func timeOf(m protoreflect.Message) (time.Time, error) {
	fields := m.Descriptor().Fields()
	s, n := m.Get(fields.ByNumber(secondsField)).Int(), m.Get(fields.ByNumber(nanosField)).Int()
	if s < minSeconds || s > maxSeconds || n < 0 || n >= int64(time.Second) {
		return time.Time{}, failf("the timestamp is not one of the years 1 to 9999")
	}
	return time.Unix(s, n).UTC(), nil
}

func setTime(m protoreflect.Message, t time.Time) error {
	if s := t.Unix(); s < minSeconds || s > maxSeconds {
		return failf("the time is not one of the years 1 to 9999")
	}
	setPair(m, t.Unix(), int32(t.Nanosecond()))
	return nil
}

// setPair sets seconds and nanos.
func setPair(m protoreflect.Message, seconds int64, nanos int32) {
	fields := m.Descriptor().Fields()
	m.Set(fields.ByNumber(secondsField), protoreflect.ValueOfInt64(seconds))
	m.Set(fields.ByNumber(nanosField), protoreflect.ValueOfInt32(nanos))
}

func durationText(s, n int64) (string, error) {
	if s < -maxDuration || s > maxDuration || n <= -int64(time.Second) || n >= int64(time.Second) || s > 0 && n < 0 || s < 0 && n > 0 {
		return "", failf("the duration is out of range")
	}
	sign := ""
	if s < 0 || n < 0 {
		sign, s, n = "-", -s, -n
	}
	text := fmt.Sprintf("%s%d.%09d", sign, s, n)
	for range 3 {
		if cut, ok := strings.CutSuffix(text, "000"); ok {
			text = cut
		}
	}
	return strings.TrimSuffix(text, ".") + "s", nil
}

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
	n, err := strconv.ParseInt((fraction + "000000000")[:9], 10, 32)
	if err != nil {
		return 0, 0, bad
	}
	if strings.HasPrefix(body, "-") {
		s, n = -s, -n
	}
	if _, err := durationText(s, n); err != nil {
		return 0, 0, err
	}
	return s, int32(n), nil
}
