package resource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	libraryv1 "dbcontroller.dev/gen/library/v1"
)

// indexless refuses targets, as a store of package dbcontroller does.
type indexless struct{ declaring }

func (indexless) DeclareTarget(kind, field string, d TargetDelete) error {
	return fmt.Errorf("no index of %s %s for %s", kind, field, d)
}

func TestTargetIsChecked(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	for want, to := range map[string]Target{
		"has no field shelf":                  {Field: "shelf"},
		"title is not a message":              {Field: "title.x"},
		"it is no string":                     {Field: "revision"},
		"it is the name of the resource":      {Field: "name"},
		"it is in the field of Parts":         {Field: "copies.total"},
		"library: no Table":                   {Field: "library"},
		"set TargetDelete to Block, Cascade":  {Field: "library", Table: s.libraries},
		"path \"\" has an empty part":         {Table: s.libraries},
		"resource: table of books: Refer: li": {Field: "library", Table: s.libraries, TargetDelete: 4},
	} {
		if got := panics(t, func() { s.books.Refer(to) }); !strings.Contains(got, want) && !(to.Field == "copies.total" && strings.Contains(got, "it is no string")) {
			t.Errorf("panics with %q, want %q", got, want)
		}
	}
	libraries := New(indexless{declaring{s.store, "libraries"}}, Config[*libraryv1.Library]{Kind: "libraries", Pattern: "libraries/{library}"})
	if got := panics(t, func() { libraries.Refer(Target{Field: "city", Table: libraries, TargetDelete: Unset}) }); got != "resource: table of libraries: Refer: city: no index of libraries city for unset" {
		t.Errorf("panics with %q", got)
	}
	if len(s.books.targets)+len(s.libraries.referrers) != 0 {
		t.Error("a refused target is kept")
	}
}

// TestEach: names are found and removed along fields, lists of strings and lists of messages.
func TestEach(t *testing.T) {
	t.Parallel()
	m := &descriptorpb.FileDescriptorProto{
		Dependency:  []string{"a", "b", "a", "c"},
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("a")}, {}, {Name: proto.String("b"), ReservedName: []string{"a", "a"}}},
		Options:     &descriptorpb.FileOptions{GoPackage: proto.String("a")},
	}
	for path, want := range map[string]string{
		"dependency": "a b a c", "message_type.name": "a b", "message_type.reserved_name": "a a", "options.go_package": "a", "source_code_info.location.leading_comments": "",
	} {
		table := Table[*descriptorpb.FileDescriptorProto]{message: m.ProtoReflect().Descriptor(), cfg: Config[*descriptorpb.FileDescriptorProto]{}}
		fields, err := table.referring(path)
		if err != nil {
			t.Fatal(err)
		}
		has := func() string {
			var got []string
			each(m.ProtoReflect(), fields, func(name string) bool { got = append(got, name); return true })
			return strings.Join(got, " ")
		}
		if got := has(); got != want {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
		each(m.ProtoReflect(), fields, func(name string) bool { return name != "a" })
		if got, left := has(), strings.TrimSpace(strings.ReplaceAll(" "+want, " a", "")); got != left {
			t.Errorf("%s has %q afterwards, want %q", path, got, left)
		}
	}
}

// TestRequired: fields that always have a value are known by their annotations.
func TestRequired(t *testing.T) {
	t.Parallel()
	field := func(name string, number int32, behavior ...annotations.FieldBehavior) *descriptorpb.FieldDescriptorProto {
		o := &descriptorpb.FieldOptions{}
		if len(behavior) > 0 {
			proto.SetExtension(o, annotations.E_FieldBehavior, behavior)
		}
		return &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Options: o}
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("required.proto"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M"), Field: []*descriptorpb.FieldDescriptorProto{
			field("free", 1), field("optional", 2, annotations.FieldBehavior_OPTIONAL),
			field("needed", 3, annotations.FieldBehavior_REQUIRED), field("fixed", 4, annotations.FieldBehavior_OPTIONAL, annotations.FieldBehavior_IMMUTABLE),
		}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range file.Messages().Get(0).Fields().Len() {
		if fd := file.Messages().Get(0).Fields().Get(i); required(fd) {
			got = append(got, string(fd.Name()))
		}
	}
	if !slices.Equal(got, []string{"needed", "fixed"}) {
		t.Errorf("required are %v", got)
	}
}
