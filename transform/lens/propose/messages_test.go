package propose_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/propose"
)

// versions writes and compiles the protos of two versions.
func versions(t *testing.T, old, now string) (protoreflect.FileDescriptor, protoreflect.FileDescriptor) {
	t.Helper()
	head := "syntax = \"proto3\";\npackage shop.VERSION;\nimport \"google/protobuf/timestamp.proto\";\nimport \"google/api/resource.proto\";\n"
	var out [2]protoreflect.FileDescriptor
	for i, body := range []string{old, now} {
		name := filepath.Join(t.TempDir(), "shop.proto")
		if err := os.WriteFile(name, []byte(strings.ReplaceAll(head, "VERSION", []string{"v1", "v2"}[i])+body), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := propose.Proto(t.Context(), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = file
	}
	return out[0], out[1]
}

// TestMessages: each difference of two messages is an operation, or a comment that names it.
func TestMessages(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		old, now string // bodies of the message
		want     []string
	}{
		"nothing":         {"string a = 1;", "string a = 1;", []string{"operations: []"}},
		"renamed":         {"string title = 2;", "string summary = 2;", []string{"- rename: {from: title, to: summary}"}},
		"converted":       {"int32 size = 1;", "int64 size = 1;", []string{"- convert: {field: size, from: int, to: long}"}},
		"both":            {"int32 size = 1;", "string bytes = 1;", []string{"- rename: {from: size, to: bytes}", "- convert: {field: bytes, from: int, to: string}"}},
		"above a long":    {"uint64 size = 1;", "string size = 1;", []string{"- convert: {field: size, from: number, to: string}"}},
		"epoch":           {"int64 due_at = 1;", "google.protobuf.Timestamp due_time = 1;", []string{"- rename: {from: due_at, to: due_time}", "- convert: {field: due_time, from: epoch, to: date} # or from: epochMillis; list it in Sparse if its zero value means none"}},
		"time as text":    {"optional string at = 1;", "google.protobuf.Timestamp at = 1;", []string{"- convert: {field: at, from: rfc3339, to: date}\n"}},
		"time to text":    {"google.protobuf.Timestamp at = 1;", "string at = 1;", []string{"- convert: {field: at, from: date, to: rfc3339}"}},
		"gone":            {"string legacy = 1; optional int32 old = 2;", "", []string{`- remove: {field: legacy, default: ""}`, "- remove: {field: old}"}},
		"new":             {"", "int32 n = 1; int64 l = 2; repeated string s = 3; optional bool o = 4; Part p = 5; bytes b = 6; Color c = 7;", []string{"- add: {field: \"n\", default: 0}", `- add: {field: l, default: {$numberLong: "0"}}`, "- add: {field: s, default: []}", "- add: {field: o, default: null}", "- add: {field: p, default: null}", `- add: {field: b, default: {$binary: {base64: "", subType: "00"}}}`, "- add: {field: c, default: COLOR_NONE}"}},
		"enum":            {"Color color = 1;", "Paint color = 1;", []string{"- convert: {field: color, table: {COLOR_NONE: PAINT_NONE, RED: RED}}", "# color: the new version has no value for BLUE", "# color: the old version has no value for GREEN"}},
		"enum to number":  {"Color color = 1;", "int32 color = 1;", []string{"- convert: {field: color, table: {COLOR_NONE: 0, RED: 1, BLUE: 2}} # records with other values are parked"}},
		"number to enum":  {"int32 color = 1;", "Color color = 1;", []string{"- convert: {field: color, table: {0: COLOR_NONE, 1: RED_, 2: BLUE}} # records with other values are parked"}},
		"object":          {"Part part = 1;", "Piece piece = 1;", []string{"- rename: {from: part, to: piece}", "- rename: {from: piece.room, to: piece.hall}", "- convert: {field: piece.row, from: int, to: long}"}},
		"list of objects": {"repeated Part parts = 1;", "repeated Piece parts = 1;", []string{"- each: {field: parts, operations: [rename: {from: room, to: hall}, convert: {field: row, from: int, to: long}]}"}},
		"map of objects":  {"map<string, Part> parts = 1;", "map<string, Piece> parts = 1;", []string{"- each: {field: parts, in: map, operations: [rename: {from: room, to: hall}, convert: {field: row, from: int, to: long}]}"}},
		"list of values":  {"repeated int32 sizes = 1;", "repeated int64 sizes = 1;", []string{"- each: {field: sizes, operations: [convert: {field: \".\", from: int, to: long}]}"}},
		"one to list":     {"string tag = 1;", "repeated string tags = 1;", []string{"- rename: {from: tag, to: tags}", "- wrap: {field: tags} # one value became a list: an empty value is a list with it"}},
		"list to one":     {"repeated string tags = 1;", "string tag = 1;", []string{"- unwrap: {field: tag} # a list became one value: records with several are parked"}},
		"presence":        {"string a = 1;", "optional string a = 1;", []string{`# a: only one version can leave it unset: there it is absent, and in the other version "" is in its place`}},
		"renumbered":      {"string a = 1;", "string a = 2;", []string{"# a: it has number 2 now, so clients of one version do not read it from messages of the other"}},
		"moved number":    {"string a = 1; string b = 2;", "string b = 1; string c = 2;", []string{"# b: number 2 is now c, and the name has number 1: this draft follows the name"}},
		"recursive":       {"M self = 1; string x = 2;", "M self = 1; string z = 2;", []string{"- rename: {from: x, to: z}", "# self: the message contains itself"}},
		"no way":          {"bytes a = 1;", "int32 a = 1;", []string{"# a: it was of type bytes and is of type int32, which no conversion explains: try compute or a hook"}},
		"map to list":     {"map<string, string> a = 1;", "repeated string a = 1;", []string{"# a: only one version has a map: write a hook"}},
		"names for YAML":  {"string y = 1;", "string on = 1;", []string{`- rename: {from: "y", to: "on"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const others = "\nmessage Part { string room = 1; int32 row = 2; }\nmessage Piece { string hall = 1; int64 row = 2; }\n" +
				"enum Color { COLOR_NONE = 0; RED = 1; BLUE = 2; }\nenum Paint { PAINT_NONE = 0; RED2 = 3; GREEN = 4; }\n"
			paint := strings.Replace(others, "RED2 = 3", "RED = 1", 1)
			paint = strings.Replace(paint, "COLOR_NONE = 0; RED = 1;", "COLOR_NONE = 0; RED_ = 1;", 1)
			old, now := versions(t, "message M { "+tc.old+" }"+others, "message M { "+tc.now+" }"+paint)
			messages, err := propose.Resources(old, now, []string{"M"})
			if err != nil {
				t.Fatal(err)
			}
			draft, _, err := propose.Messages("ms", "ms", messages[0])
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(string(draft.Text), want) {
					t.Errorf("%q is not in\n%s", want, draft.Text)
				}
			}
			if _, err := lens.Parse("draft.yaml", draft.Text); err != nil {
				t.Errorf("%v:\n%s", err, draft.Text)
			}
		})
	}
}

// TestResources finds the messages, and the patterns of their names.
func TestResources(t *testing.T) {
	t.Parallel()
	const service = "service S { rpc GetTask(R) returns (Task); rpc GetStatus(R) returns (R); rpc ListNotes(R) returns (R); rpc GetNote(R) returns (Note); }\nmessage R {}\n"
	old, now := versions(t,
		service+"message Task {\n  // projects/{project}/tasks/{task}\n  string name = 1;\n}\nmessage Note { option (google.api.resource) = {type: \"a/b\" pattern: \"notes/{note}\"}; string name = 1; }",
		service+"// A Task is named regions/{region}/tasks/{task}.\nmessage Task { string name = 1; }\nmessage Note { option (google.api.resource) = {type: \"a/b\" pattern: \"notes/{note}\"}; string name = 1; }\nmessage Memo { string name = 1; }")
	all, err := propose.Resources(old, now, nil)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	if all[0].OldPattern != "projects/{project}/tasks/{task}" || all[0].NewPattern != "regions/{region}/tasks/{task}" || all[0].Kind() != "tasks" {
		t.Error(all[0].OldPattern, all[0].NewPattern, all[0].Kind())
	}
	if all[1].OldPattern != "notes/{note}" || all[1].NewPattern != "notes/{note}" {
		t.Error(all[1].OldPattern, all[1].NewPattern)
	}
	draft, _, err := propose.Messages("tasks", "tasks", all[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  with: {region: CHANGE-ME} # ", "  without: {project: CHANGE-ME} # ", "- reference: {field: name, kind: self}"} {
		if !strings.Contains(string(draft.Text), want) {
			t.Errorf("%q is not in\n%s", want, draft.Text)
		}
	}
	one, err := propose.Resources(old, now, []string{"Note=Memo"})
	if err != nil || len(one) != 1 || one[0].New.Name() != "Memo" {
		t.Error(one, err)
	}
	for _, names := range [][]string{{"None"}, {"Note=None"}} {
		if _, err := propose.Resources(old, now, names); err == nil || !strings.Contains(err.Error(), "has no message None") {
			t.Errorf("%v: %v", names, err)
		}
	}
}
