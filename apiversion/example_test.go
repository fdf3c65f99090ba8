package apiversion_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/internal/prototest"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/transform"
)

// The new version has times of whole seconds.
func ExampleTyped() {
	r, err := apiversion.Typed(
		func(old *timestamppb.Timestamp, _ *durationpb.Duration) (*durationpb.Duration, error) {
			return &durationpb.Duration{Seconds: old.Seconds}, nil
		},
		func(now *durationpb.Duration, _ *timestamppb.Timestamp) (*timestamppb.Timestamp, error) {
			return &timestamppb.Timestamp{Seconds: now.Seconds}, nil
		},
		apiversion.OnlyOld("nanos"), apiversion.OnlyNew("nanos"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, asked := range []string{"seconds > 5", "nanos > 5"} {
		f, err := listing.ParseFilter(asked, r.Old)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(r.Filter(f))
	}
	// Output:
	// seconds > 5 <nil>
	//  nanos: has no counterpart in google.protobuf.Duration
}

// A client of version 1 reads a part that only a handler of version 2 serves. With
// generated code the messages and the client are typed; here they are dynamic.
func ExampleNewHandler() {
	file, err := prototest.Compile("parts.proto")
	if err != nil {
		fmt.Println(err)
		return
	}
	message := func(name protoreflect.Name) protoreflect.MessageDescriptor { return file.Messages().ByName(name) }
	v1, v2 := file.Services().ByName("PartsV1"), file.Services().ByName("PartsV2")

	// v2 has the weight in milligrams. A read needs only Down.
	part := &apiversion.Resource{
		Old: message("PartV1"), New: message("PartV2"), OldName: "guid", NewName: "id", SameNames: true,
		UpMapping: transform.Identity{}, DownMapping: transform.Identity{},
		Up: func(proto.Message, proto.Message) (proto.Message, error) {
			return nil, errors.New("parts are only read")
		},
		Down: func(now, _ proto.Message) (proto.Message, error) {
			old := dynamicpb.NewMessage(message("PartV1"))
			put(old, "guid", get(now.ProtoReflect(), "id").String())
			put(old, "weight_g", int32(get(now.ProtoReflect(), "weight_mg").Int()/1000))
			return old, nil
		},
	}
	const why = "use version 2"
	table, err := apiversion.NewTable(apiversion.Config{
		Old: v1, New: v2, Resources: []*apiversion.Resource{part},
		Methods: []apiversion.Method{
			{Old: "FetchPart", New: "GetPart", ResponseFields: map[string]string{"note": "remark"}},
			{Old: "AddPart", Discontinued: why}, {Old: "ReplacePart", Discontinued: why},
			{Old: "ListParts", Discontinued: why}, {Old: "ListBins", Discontinued: why},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	native := connect.NewUnaryHandler("/prototest.parts.PartsV2/GetPart", func(_ context.Context, req *connect.Request[dynamicpb.Message]) (*connect.Response[dynamicpb.Message], error) {
		out := dynamicpb.NewMessage(message("GetPartReplyV2"))
		found := out.Mutable(out.Descriptor().Fields().ByName("found")).Message()
		put(found, "id", get(req.Msg, "id").String())
		put(found, "weight_mg", int64(5000))
		return connect.NewResponse(out), nil
	}, connect.WithRequestInitializer(func(_ connect.Spec, m any) error {
		*m.(*dynamicpb.Message) = *dynamicpb.NewMessage(message("PartRefV2"))
		return nil
	}))
	mux := http.NewServeMux()
	mux.Handle(table.Path(), apiversion.NewHandler(table, native, apiversion.Options{}))

	client := connect.NewClient[dynamicpb.Message, dynamicpb.Message](inprocess.Client(mux), "http://localhost/prototest.parts.PartsV1/FetchPart",
		connect.WithResponseInitializer(func(_ connect.Spec, m any) error {
			*m.(*dynamicpb.Message) = *dynamicpb.NewMessage(message("PartReplyV1"))
			return nil
		}))
	req := dynamicpb.NewMessage(message("PartRefV1"))
	put(req, "guid", "bolt")
	resp, err := client.CallUnary(context.Background(), connect.NewRequest(req))
	if err != nil {
		fmt.Println(err)
		return
	}
	shown := get(resp.Msg, "part").Message()
	fmt.Println(get(shown, "guid"), get(shown, "weight_g"))
	// Output: bolt 5
}
