package apiversion_test

import (
	"context"
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"dbcontroller/apiversion"
	"dbcontroller/apiversion/prototest"
	"dbcontroller/internal/inprocess"
)

func ExampleDeclare() {
	old, now := (&durationpb.Duration{}).ProtoReflect().Descriptor(), (&timestamppb.Timestamp{}).ProtoReflect().Descriptor()
	r, err := apiversion.Declare(old, now) // the same fields: no difference to declare
	if err != nil {
		fmt.Println(err)
		return
	}
	up, err := r.Up(&durationpb.Duration{Seconds: 5}, nil)
	fmt.Println(proto.Equal(up, &timestamppb.Timestamp{Seconds: 5}), err)
	_, err = apiversion.Declare(old, now, apiversion.Renamed("seconds", "minutes"))
	fmt.Println(err)
	// Output:
	// true <nil>
	// resource google.protobuf.Timestamp: it has no field minutes below messages
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

	part, err := apiversion.Declare(message("PartV1"), message("PartV2"), apiversion.Renamed("guid", "id"), weight, apiversion.OnlyNew("maker", nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	part.OldName, part.NewName = "guid", "id"
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
