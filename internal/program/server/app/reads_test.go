package app

import (
	"slices"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// TestUnmarkedReads: a server names the methods that are probably reads and do not declare it.
func TestUnmarkedReads(t *testing.T) {
	t.Parallel()
	method := func(name string, level descriptorpb.MethodOptions_IdempotencyLevel) *descriptorpb.MethodDescriptorProto {
		return &descriptorpb.MethodDescriptorProto{Name: &name, InputType: proto.String(".shop.v1.M"), OutputType: proto.String(".shop.v1.M"),
			Options: &descriptorpb.MethodOptions{IdempotencyLevel: &level}}
	}
	const none, read = descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN, descriptorpb.MethodOptions_NO_SIDE_EFFECTS
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("shop.proto"), Package: proto.String("shop.v1"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M")}},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("S"), Method: []*descriptorpb.MethodDescriptorProto{
			method("GetOrder", none), method("ListOrders", read), method("WatchOrders", none), method("CreateOrder", none), method("Getaway", none),
		}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	svc := Service{APIs: []protoreflect.ServiceDescriptor{file.Services().Get(0)}}
	want := []string{"shop.v1.S.GetOrder", "shop.v1.S.WatchOrders"}
	if got := svc.unmarkedReads(); !slices.Equal(got, want) {
		t.Errorf("unmarked are %v, want %v", got, want)
	}
	core, logs := observer.New(zap.WarnLevel)
	svc.warnOfReads(zap.New(core))
	Service{}.warnOfReads(zap.New(core))
	if logs.Len() != 1 {
		t.Errorf("%d warnings", logs.Len())
	}
}
