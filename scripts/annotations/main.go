// Command annotations writes google/api/annotations.proto, resource.proto and their imports as a
// descriptor set, for protoc --descriptor_set_in. A copy of these files in proto/ could differ from the Go module.
package main

import (
	"fmt"
	"os"
	"slices"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

func main() {
	var set descriptorpb.FileDescriptorSet
	add(&set, annotations.File_google_api_annotations_proto)
	add(&set, annotations.File_google_api_resource_proto)
	out, err := proto.Marshal(&set)
	if err == nil {
		_, err = os.Stdout.Write(out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "annotations:", err)
		os.Exit(1)
	}
}

// add appends a file behind its imports, which protoc requires, unless the set has it.
func add(set *descriptorpb.FileDescriptorSet, file protoreflect.FileDescriptor) {
	if slices.ContainsFunc(set.File, func(f *descriptorpb.FileDescriptorProto) bool { return f.GetName() == file.Path() }) {
		return
	}
	for i := range file.Imports().Len() {
		add(set, file.Imports().Get(i).FileDescriptor)
	}
	set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
}
