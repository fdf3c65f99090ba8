package prototest

import (
	"strconv"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/transform"
)

// DrawFilter draws a filter over the fields at the given paths. depth limits its nesting. Some
// filters do not fit the message type, so the caller must check them.
func DrawFilter(t *rapid.T, d protoreflect.MessageDescriptor, paths []string, depth int) listing.Filter {
	kind := rapid.IntRange(0, 5).Draw(t, "filter")
	if depth == 0 {
		// At the limit only a single condition is left.
		kind = 5
	}
	several := func() []listing.Filter {
		out := make([]listing.Filter, rapid.IntRange(1, 3).Draw(t, "parts"))
		for i := range out {
			out[i] = DrawFilter(t, d, paths, depth-1)
		}
		return out
	}
	switch kind {
	case 0, 1:
		return listing.All(several()...)
	case 2, 3:
		return listing.Any(several()...)
	case 4:
		return listing.Negate(DrawFilter(t, d, paths, depth-1))
	}
	path := rapid.SampledFrom(paths).Draw(t, "path")
	c := transform.Condition{Path: path, Op: rapid.SampledFrom([]transform.Operator{
		transform.OpEqual, transform.OpEqual, transform.OpLess, transform.OpLessEqual, transform.OpGreater, transform.OpGreaterEqual,
		transform.OpIn, transform.OpContains, transform.OpPrefix, transform.OpHas,
	}).Draw(t, "operator")}
	n := 1
	switch c.Op {
	// An "in" with no value is valid and matches nothing.
	case transform.OpIn:
		n = rapid.IntRange(0, 3).Draw(t, "values")
	case transform.OpHas:
		n = 0
	}
	fd := Find(d, path)
	for range n {
		c.Values = append(c.Values, literal(t, fd))
	}
	return listing.Where(c)
}

// Find returns the descriptor of the values at a path. The path must exist, and map entries need a
// key.
func Find(d protoreflect.MessageDescriptor, path string) protoreflect.FieldDescriptor {
	parts, err := listing.SplitPath(path)
	if err != nil {
		panic(err)
	}
	var fd protoreflect.FieldDescriptor
	for i := 0; i < len(parts); i++ {
		fd = d.Fields().ByName(protoreflect.Name(parts[i]))
		// Skip the key: it is part of the path but not a field.
		if fd.IsMap() {
			fd, i = fd.MapValue(), i+1
		}
		d = fd.Message()
	}
	return fd
}

// literal draws a value for fd, in the Go types of transform.Condition.
func literal(t *rapid.T, fd protoreflect.FieldDescriptor) any {
	if fd.Message() != nil {
		if fd.Message().FullName() == "google.protobuf.Timestamp" {
			// Few seconds and nanos, so that times are often equal.
			return time.Unix(rapid.Int64Range(0, 3).Draw(t, "seconds"), rapid.SampledFrom([]int64{0, 5e6, 5e6 + 1}).Draw(t, "nanos")).UTC()
		}
		// All other messages on the paths are wrappers.
		fd = fd.Message().Fields().ByNumber(1)
	}
	v := Scalar(t, fd)
	switch x := v.Interface().(type) {
	case int32:
		return int64(x)
	case uint32:
		return uint64(x)
	case float32:
		return float64(x)
	case protoreflect.EnumNumber:
		if named := fd.Enum().Values().ByNumber(x); named != nil {
			return string(named.Name())
		}
		// The drawn number may have no name.
		return strconv.Itoa(int(x))
	default:
		return x
	}
}
