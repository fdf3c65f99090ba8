package apiversion_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"dbcontroller/apiversion"
)

// TestTyped uses two generated messages of the same fields.
func TestTyped(t *testing.T) {
	t.Parallel()
	r, err := apiversion.Typed(
		func(d *durationpb.Duration, have *timestamppb.Timestamp) (*timestamppb.Timestamp, error) {
			return &timestamppb.Timestamp{Seconds: d.Seconds, Nanos: have.GetNanos()}, nil
		},
		func(ts *timestamppb.Timestamp, _ *durationpb.Duration) (*durationpb.Duration, error) {
			return &durationpb.Duration{Seconds: ts.Seconds}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	asDynamic := func(m proto.Message) proto.Message {
		out := dynamicpb.NewMessage(m.ProtoReflect().Descriptor())
		proto.Merge(out, m)
		return out
	}
	for _, msg := range []proto.Message{&durationpb.Duration{Seconds: 5}, asDynamic(&durationpb.Duration{Seconds: 5})} {
		for have, want := range map[proto.Message]int32{nil: 0, &timestamppb.Timestamp{Nanos: 7}: 7, asDynamic(&timestamppb.Timestamp{Nanos: 7}): 7} {
			now, err := r.Up(msg, have)
			if err != nil || !proto.Equal(now, &timestamppb.Timestamp{Seconds: 5, Nanos: want}) {
				t.Errorf("%T over %T: %v, %v", msg, have, now, err)
			}
		}
	}
	if _, err := r.Up(&timestamppb.Timestamp{}, nil); err == nil {
		t.Error("a message of another type was accepted")
	}
}
