package apiversion_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/transform"
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

// method and value are two generated messages, and their options too, of which each has
// fields that the other does not have.
type (
	method       = *descriptorpb.MethodDescriptorProto
	value        = *descriptorpb.EnumValueDescriptorProto
	serviceProto = *descriptorpb.ServiceDescriptorProto
)

// named keeps nothing but the name.
func named[A, B interface {
	proto.Message
	GetName() string
}](msg A, have B) (B, error) {
	out := have.ProtoReflect().New()
	put(out, "name", msg.GetName())
	return out.Interface().(B), nil
}

var (
	onlyMethod = apiversion.OnlyOld("input_type", "output_type", "client_streaming", "server_streaming", "options.idempotency_level")
	onlyValue  = apiversion.OnlyNew("number", "options.debug_redact", "options.feature_support")
)

func TestTypedIsChecked(t *testing.T) {
	t.Parallel()
	made := func(options ...apiversion.TypedOption) error {
		_, err := apiversion.Typed(named[method, value], named[value, method], options...)
		return err
	}
	boxed := func(options ...apiversion.TypedOption) error {
		_, err := apiversion.Typed(
			func(*wrapperspb.StringValue, *wrapperspb.Int64Value) (*wrapperspb.Int64Value, error) {
				return nil, errors.New("not needed")
			},
			func(*wrapperspb.Int64Value, *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
				return nil, errors.New("not needed")
			}, options...)
		return err
	}
	for _, tc := range []struct {
		err  error
		want string
	}{
		{made(onlyMethod, onlyValue), ""},
		{made(onlyValue), "resource google.protobuf.MethodDescriptorProto: input_type has no counterpart in google.protobuf.EnumValueDescriptorProto: name it with OnlyOld"},
		{made(onlyMethod), "resource google.protobuf.EnumValueDescriptorProto: number has no counterpart in google.protobuf.MethodDescriptorProto: name it with OnlyNew"},
		{made(onlyMethod, apiversion.OnlyNew("number", "options.debug_redact")), "options.feature_support has no counterpart in google.protobuf.MethodOptions: name it with OnlyNew"},
		{made(onlyMethod, onlyValue, apiversion.OnlyOld("outputtype")), "OnlyOld: it has no field outputtype below messages"},
		{made(onlyMethod, onlyValue, apiversion.OnlyNew("options.uninterpreted_option.name")), "OnlyNew: it has no field options.uninterpreted_option.name below messages"},
		{made(onlyMethod, onlyValue, apiversion.OnlyNew("number")), "OnlyNew names number twice"},
		{boxed(), "value is of another type in google.protobuf.Int64Value: name it with OnlyOld"},
		{boxed(apiversion.OnlyOld("value")), "value is of another type in google.protobuf.StringValue: name it with OnlyNew"},
		{boxed(apiversion.OnlyOld("value"), apiversion.OnlyNew("value")), ""},
	} {
		if tc.want == "" && tc.err != nil || tc.want != "" && (tc.err == nil || !strings.HasSuffix(tc.err.Error(), tc.want)) {
			t.Errorf("want %q, got %v", tc.want, tc.err)
		}
	}
}

// TestTypedRequests: fields that both versions have pass, the others are refused.
func TestTypedRequests(t *testing.T) {
	t.Parallel()
	up, err := apiversion.Typed(named[method, value], named[value, method], onlyMethod, onlyValue)
	if err != nil {
		t.Fatal(err)
	}
	few, err := apiversion.Typed(named[serviceProto, value], named[value, serviceProto], apiversion.OnlyOld("method"), onlyValue)
	if err != nil {
		t.Fatal(err)
	}
	down := up.Reverse()
	const noMethod, noValue = "has no counterpart in google.protobuf.MethodDescriptorProto", "has no counterpart in google.protobuf.EnumValueDescriptorProto"
	for _, tc := range []struct {
		r                *apiversion.Resource
		kind, text, want string // what begins with ! is an error
	}{
		{up, "filter", `name.startsWith("a")`, `name.startsWith("a")`},
		{up, "filter", `options.deprecated == true && name == "a"`, `options.deprecated == true && name == "a"`},
		{up, "filter", `input_type == "a"`, "!input_type: " + noValue},
		{up, "filter", `options.idempotency_level == "IDEMPOTENT"`, "!options.idempotency_level: " + noValue},
		{up, "filter", `has(options)`, "!options: has other fields in the other version: compare them one by one"},
		{down, "filter", `number == 1`, "!number: " + noMethod},
		{down, "filter", `options.feature_support.deprecation_warning == "a"`, "!options.feature_support.deprecation_warning: " + noMethod},
		{few, "filter", `has(options)`, `has(options)`},
		{up, "order", "name desc, options.deprecated", "name desc, options.deprecated"},
		{up, "order", "input_type", "!input_type: " + noValue},
		{up, "mask", "name", "name"},
		{up, "mask", "output_type", "!output_type: " + noValue},
		{up, "mask", "options", "options.deprecated options.features options.uninterpreted_option"},
		{up, "mask", "options.features.enum_type", "options.features.enum_type"},
		{up, "mask", "*", "options.deprecated options.features options.uninterpreted_option"},
		// The old version has no other options: a mask of them can name that there are none.
		{few.Reverse(), "mask", "options", "options"},
		{few.Reverse(), "mask", "options.debug_redact", "!options.debug_redact: has no counterpart in google.protobuf.ServiceDescriptorProto"},
	} {
		var got string
		var err error
		switch tc.kind {
		case "filter":
			var f listing.Filter
			if f, err = listing.ParseFilter(tc.text, tc.r.Old); err != nil {
				t.Fatal(err)
			}
			f, err = tc.r.Filter(f)
			got = f.String()
		case "order":
			var o listing.Order
			if o, err = listing.ParseOrder(tc.text, tc.r.Old); err != nil {
				t.Fatal(err)
			}
			o, err = tc.r.Order(o)
			got = o.String()
		default:
			var mask *fieldmaskpb.FieldMask
			mask, err = tc.r.UpdateMask(&fieldmaskpb.FieldMask{Paths: strings.Fields(tc.text)})
			got = strings.Join(slices.Sorted(slices.Values(mask.GetPaths())), " ")
		}
		if err != nil {
			got = "!" + err.Error()
		}
		if got != tc.want {
			t.Errorf("%s %s became %s", tc.kind, tc.text, got)
		}
	}
}

// shifted asks for other seconds than the client, but not where none are set.
type shifted struct{ transform.Mapping }

func (m shifted) Compare(c transform.Condition) ([]transform.Condition, error) {
	c.Values = []any{c.Values[0].(int64) + 1}
	return []transform.Condition{c}, nil
}

// TestTypedOfNothing: functions need not know what an empty message shows. Fields of the
// same type are then taken to be unset in both versions.
func TestTypedOfNothing(t *testing.T) {
	t.Parallel()
	refuse := func(*timestamppb.Timestamp, *durationpb.Duration) (*durationpb.Duration, error) {
		return nil, errors.New("there is nothing")
	}
	r, err := apiversion.Typed(func(*durationpb.Duration, *timestamppb.Timestamp) (*timestamppb.Timestamp, error) {
		return &timestamppb.Timestamp{}, nil
	}, refuse)
	if err != nil {
		t.Fatal(err)
	}
	f, err := listing.ParseFilter("seconds == 0", r.Old)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Filter(f); err != nil || got.String() != "seconds == 0" {
		t.Errorf("became %s, %v", got, err)
	}
	r.UpMapping = shifted{r.UpMapping}
	if got, err := r.Filter(f); err == nil || !strings.Contains(err.Error(), "means something else in the other version where it is not set") {
		t.Errorf("became %s, %v", got, err)
	}
}
