package protodoc_test

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion/protodoc"
)

// The same messages before and after everything in them got another name.
const (
	beforeNames = `syntax = "proto3"; package before;
message Task { string title = 1; Color color = 2; repeated Step steps = 3; map<string, Step> by = 4; repeated Color colors = 5; }
message Step { string text = 1; optional int32 cost = 2; }
enum Color { NONE = 0; RED = 1; }`
	afterNames = `syntax = "proto3"; package after;
import "dbcontroller/protodoc/v1/alias.proto";
message Task {
  string display_name = 1 [(dbcontroller.protodoc.v1.alias) = "title", (dbcontroller.protodoc.v1.alias) = "caption"];
  Color tint = 2 [(dbcontroller.protodoc.v1.alias) = "color"];
  repeated Step parts = 3 [(dbcontroller.protodoc.v1.alias) = "steps"];
  map<string, Step> by_name = 4 [(dbcontroller.protodoc.v1.alias) = "by"];
  repeated Color colors = 5;
}
message Step { string summary = 1 [(dbcontroller.protodoc.v1.alias) = "text"]; optional int32 price = 2 [(dbcontroller.protodoc.v1.alias) = "cost"]; }
enum Color { BLANK = 0 [(dbcontroller.protodoc.v1.value_alias) = "NONE"]; CRIMSON = 1 [(dbcontroller.protodoc.v1.value_alias) = "RED"]; }`
	content = `display_name: "t" tint: CRIMSON parts { summary: "one" price: 3 } parts { summary: "two" }
by_name { key: "k" value { summary: "three" price: 0 } } colors: [CRIMSON, BLANK]`
)

// compiled is the message Task of a schema, with alias.proto as users import it.
func compiled(t *testing.T, schema string) protoreflect.MessageDescriptor {
	t.Helper()
	files, err := (&protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: func(path string) (io.ReadCloser, error) {
			if path == "schema.proto" {
				return io.NopCloser(strings.NewReader(schema)), nil
			}
			return os.Open("../../proto/" + path)
		},
	})}).Compile(context.Background(), "schema.proto")
	if err != nil {
		t.Fatal(err)
	}
	return files[0].Messages().ByName("Task")
}

func parse(t *testing.T, d protoreflect.MessageDescriptor, text string) *dynamicpb.Message {
	t.Helper()
	m := dynamicpb.NewMessage(d)
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return m
}

// earlier is the document of the content as a program before the change has written it.
func earlier(t *testing.T) bson.Raw {
	t.Helper()
	text := strings.NewReplacer("display_name", "title", "tint", "color", "parts", "steps", "by_name", "by", "summary", "text", "price", "cost", "CRIMSON", "RED", "BLANK", "NONE").Replace(content)
	doc, err := protodoc.MarshalID("tasks/t", parse(t, compiled(t, beforeNames), text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestAliases: what has got another name is read as it was, at every level; a change writes the
// present name in place of the former one, and nothing else is touched.
func TestAliases(t *testing.T) {
	t.Parallel()
	d, doc := compiled(t, afterNames), earlier(t)
	want := parse(t, d, content)
	got := dynamicpb.NewMessage(d)
	if err := protodoc.Unmarshal(doc, got); err != nil || !proto.Equal(got, want) {
		t.Fatalf("read as %v, %v, want %v", got, err, want)
	}
	same, err := protodoc.Merge(doc, got)
	if err != nil || string(same) != string(doc) {
		t.Errorf("merged without a change: %s, %v", same, err)
	}
	got.Set(d.Fields().ByName("display_name"), protoreflect.ValueOfString("new"))
	changed, err := protodoc.Merge(doc, got)
	if err != nil {
		t.Fatal(err)
	}
	if text := changed.String(); !strings.HasPrefix(text, `{"_id": "tasks/t","display_name": "new","color": "RED","steps"`) || strings.Contains(text, "title") {
		t.Errorf("after a change: %s", text)
	}
	present, err := protodoc.MarshalID("tasks/t", want)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := protodoc.Renamed(doc, d); err != nil || string(now) != string(present) {
		t.Errorf("renamed to %s, %v, want %s", now, err, present)
	}
	if now, err := protodoc.Renamed(present, d); err != nil || string(now) != string(present) {
		t.Errorf("renamed again to %s, %v", now, err)
	}
}

// TestTwoNames: a field that is there under two names is not guessed at.
func TestTwoNames(t *testing.T) {
	t.Parallel()
	d := compiled(t, afterNames)
	for _, names := range [][2]string{{"display_name", "title"}, {"title", "display_name"}, {"title", "caption"}} {
		doc, err := bson.Marshal(bson.D{{Key: names[0], Value: "a"}, {Key: names[1], Value: "b"}})
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"unmarshal": protodoc.Unmarshal(doc, dynamicpb.NewMessage(d)),
			"rename":    func() error { _, err := protodoc.Renamed(doc, d); return err }(),
		} {
			if err == nil || err.Error() != "display_name: is there twice" {
				t.Errorf("%s of %v: %v", what, names, err)
			}
		}
	}
}

// TestAliasesAreChecked: a name that means two things is found before anything is read.
func TestAliasesAreChecked(t *testing.T) {
	t.Parallel()
	if err := protodoc.CheckAliases(compiled(t, afterNames)); err != nil {
		t.Error(err)
	}
	const head = `syntax = "proto3"; package p; import "dbcontroller/protodoc/v1/alias.proto"; `
	for want, schema := range map[string]string{
		`the alias "b" of p.Task.a is a name of p.Task already`:     `message Task { string a = 1 [(dbcontroller.protodoc.v1.alias) = "b"]; string b = 2; }`,
		`the alias "x" of p.Task.b is a name of p.Task already`:     `message Task { string a = 1 [(dbcontroller.protodoc.v1.alias) = "x"]; string b = 2 [(dbcontroller.protodoc.v1.alias) = "x"]; }`,
		`the alias "" of p.Task.a is a name of p.Task already`:      `message Task { string a = 1 [(dbcontroller.protodoc.v1.alias) = ""]; }`,
		`the alias "B" of p.A is a name of p.E already`:             `message Task { map<string, E> e = 1; } enum E { A = 0 [(dbcontroller.protodoc.v1.value_alias) = "B"]; B = 1; }`,
		`the alias "b" of p.Inner.a is a name of p.Inner already: `: `message Task { repeated Inner i = 1; } message Inner { Task t = 1; string a = 2 [(dbcontroller.protodoc.v1.alias) = "b"]; string b = 3; }`,
	} {
		if err := protodoc.CheckAliases(compiled(t, head+schema)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
