package apiversion

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// put converts what a client wants to be stored, and makes sure that it will be: what the
// client's version shows of the result must be what was put. A converter alone may leave
// out what the other version does not have, for in the other direction that is right.
func (r *Resource) put(old, have proto.Message) (proto.Message, error) {
	now, err := r.Up(old, have)
	if err != nil {
		return nil, err
	}
	shown, err := r.Down(now, nil)
	if err != nil {
		return nil, fmt.Errorf("what was put could not be shown again: %w", err)
	}
	want, err := dynamic(old, r.Old)
	if err != nil {
		return nil, err
	}
	got, err := dynamic(shown, r.Old)
	if err != nil {
		return nil, err
	}
	if path := differs(want, got); path != "" {
		return nil, &fieldError{path, "has a value that the other version cannot hold"}
	}
	return now, nil
}

// differs returns the path of the first field in which two messages differ, "" if they
// are equal.
func differs(a, b *dynamicpb.Message) string {
	if proto.Equal(a, b) {
		return ""
	}
	return firstDifference(a, b)
}

func firstDifference(a, b protoreflect.Message) string {
	for i := range a.Descriptor().Fields().Len() {
		fd := a.Descriptor().Fields().Get(i)
		name := string(fd.Name())
		switch {
		case a.Has(fd) != b.Has(fd):
			return name
		case !a.Has(fd) || a.Get(fd).Equal(b.Get(fd)):
		case fd.Message() != nil && !fd.IsList() && !fd.IsMap():
			return name + "." + firstDifference(a.Get(fd).Message(), b.Get(fd).Message())
		default:
			return name
		}
	}
	return "an unknown field"
}
