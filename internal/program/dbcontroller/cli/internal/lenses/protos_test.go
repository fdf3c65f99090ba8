package lenses_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/propose"
)

const (
	starterV1 = "../../../../../../examples/starter/service/proto/tasks/v1/tasks.proto"
	starterV2 = "../../../../../../examples/starter/service/proto/tasks/v2/tasks.proto"
)

// TestLensInitProtos drafts the lens that the starter's author wrote.
func TestLensInitProtos(t *testing.T) {
	t.Parallel()
	out, diag, err := runLensInit(t, "--protos", starterV1, starterV2)
	if err != nil {
		t.Fatal(err, diag)
	}
	for _, want := range []string{
		"kinds: {from: tasks, to: tasks}", "- rename: {from: title, to: summary}", "- rename: {from: due_at, to: due_time}",
		"- convert: {field: due_time, from: epoch, to: date} # ", "- add: {field: priority, default: 0}",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if !strings.Contains(diag, "1 thing to decide on") {
		t.Error(diag)
	}
}

// TestDraftedServiceCompiles, with the lens beside it, and its lens parses.
func TestDraftedServiceCompiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "drafted")
	args := []string{"--protos", "../../../../../../proto/secrets/v1/secrets.proto", "../../../../../../proto/secrets/v2/secrets.proto", "-I", "../../../../../../proto", "--out", dir}
	if _, diag, err := runLensInit(t, args...); err != nil {
		t.Fatal(err, diag)
	}
	// A package that exists only for this compilation.
	replace := map[string]string{}
	root, err := filepath.Abs("../../../../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"service.go", "secrets.yaml"} {
		replace[filepath.Join(root, "examples", "drafted", name)] = filepath.Join(dir, name)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "./examples/drafted") // #nosec G204 -- a test
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		service, _ := os.ReadFile(filepath.Join(dir, "service.go")) // #nosec G304 -- a test
		t.Fatalf("%v: %s\n%s", err, out, service)
	}
	// Nothing is overwritten.
	if _, _, err := runLensInit(t, args...); exit.Of(err) != exit.Usage || !strings.Contains(err.Error(), "is there already") {
		t.Error(err)
	}
}

// TestDraftIsWrittenAsAWhole: after a failure nothing is left that would stop a repetition.
func TestDraftIsWrittenAsAWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	service := filepath.Join(dir, "service.go")
	// Nothing is there, and nothing can be written: the last of the files by name.
	if err := os.Symlink(filepath.Join(dir, "nonesuch", "service.go"), service); err != nil {
		t.Fatal(err)
	}
	args := []string{"--protos", starterV1, starterV2, "--out", dir}
	if _, _, err := runLensInit(t, args...); exit.Of(err) != exit.Usage {
		t.Errorf("the error is %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.yaml")); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
	if err := os.Remove(service); err != nil {
		t.Fatal(err)
	}
	if _, _, err := runLensInit(t, args...); err != nil {
		t.Error(err)
	}
}

// TestDraftedLensConvertsMessages: what the service stores of a message of one version is read by the
// other.
func TestDraftedLensConvertsMessages(t *testing.T) {
	t.Parallel()
	const types = "message Part { string room = 1; int32 row = 2; }\nmessage Piece { string hall = 1; int64 row = 2; }\n"
	for name, tc := range map[string]struct{ old, now, was, is string }{
		"scalars":  {"string a = 1; int32 b = 2; bool c = 3;", "string a = 1; int64 bb = 2; string c = 3;", `{"a":"x","b":7,"c":true}`, `{"a":"x","bb":"7","c":"true"}`},
		"times":    {"int64 at = 1;", "google.protobuf.Timestamp time = 1;", `{"at":"1767225600"}`, `{"time":"2026-01-01T00:00:00Z"}`},
		"objects":  {"Part p = 1; repeated Part l = 2; map<string, Part> m = 3;", "Piece p = 1; repeated Piece l = 2; map<string, Piece> m = 3;", `{"p":{"room":"a","row":1},"l":[{"room":"b"}],"m":{"k":{"row":2}}}`, `{"p":{"hall":"a","row":"1"},"l":[{"hall":"b"}],"m":{"k":{"row":"2"}}}`},
		"unset":    {"optional int32 a = 1; Part p = 2;", "optional int64 b = 1; Piece q = 2;", `{}`, `{}`},
		"new ones": {"string a = 1;", "string a = 1; repeated string b = 2; Piece p = 3; int64 n = 4; bytes d = 5;", `{"a":"x"}`, `{"a":"x"}`},
		"to lists": {"string tag = 1;", "repeated string tags = 1;", `{"tag":"x"}`, `{"tags":["x"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var files [2]protoreflect.FileDescriptor
			for i, fields := range []string{tc.old, tc.now} {
				path := filepath.Join(t.TempDir(), "m.proto")
				text := "syntax = \"proto3\";\npackage m.v" + string(rune('1'+i)) + ";\nimport \"google/protobuf/timestamp.proto\";\nmessage M { " + fields + " }\n" + types
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				file, err := propose.Proto(t.Context(), path, nil)
				if err != nil {
					t.Fatal(err)
				}
				files[i] = file
			}
			messages, err := propose.Resources(files[0], files[1], []string{"M"})
			if err != nil {
				t.Fatal(err)
			}
			draft, _, err := propose.Messages("ms", "ms", messages[0])
			if err != nil {
				t.Fatal(err)
			}
			l, err := lens.Parse("draft.yaml", draft.Text)
			if err != nil {
				t.Fatal(err)
			}
			was, want := dynamicpb.NewMessage(messages[0].Old), dynamicpb.NewMessage(messages[0].New)
			if err := errors.Join(protojson.Unmarshal([]byte(tc.was), was), protojson.Unmarshal([]byte(tc.is), want)); err != nil {
				t.Fatal(err)
			}
			doc, err := protodoc.Marshal(was)
			if err != nil {
				t.Fatal(err)
			}
			made, err := l.Up(doc, nil)
			if err != nil {
				t.Fatalf("%v\n%s", err, draft.Text)
			}
			is := dynamicpb.NewMessage(messages[0].New)
			if err := protodoc.Unmarshal(made, is); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(is, want) {
				t.Errorf("%v, want %v\n%s", is, want, draft.Text)
			}
			back, err := l.Down(made, nil)
			if err != nil {
				t.Fatal(err)
			}
			again := dynamicpb.NewMessage(messages[0].Old)
			if err := protodoc.Unmarshal(back, again); err != nil || !proto.Equal(again, was) {
				t.Errorf("back: %v, %v, want %v\n%s", err, again, was, draft.Text)
			}
		})
	}
}

// TestLensInitProtosRefuses says in one line what to do, and writes nothing.
func TestLensInitProtosRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := put("one.proto", "syntax = \"proto3\";\npackage a.v1;\nmessage A {}\nmessage B {}\n")
	other := put("other.proto", "syntax = \"proto3\";\npackage a.v2;\nmessage C {}\n")
	lacks := put("lacks.proto", "syntax = \"proto3\";\nimport \"none/there.proto\";\nmessage A {}\n")
	broken := put("broken.proto", "syntax = \"proto3\";\nmessage A {\nmessage\n")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--protos", one, one}, "choose one with --message, of A, B, or write all of them with --out"},
		{[]string{"--protos", one, other}, "have no resource of the same name: name the messages with --message OLD=NEW"},
		{[]string{"--protos", one, one, "--message", "X"}, "has no message X"},
		{[]string{"--protos", lacks, one}, "give the folder of its imports with --proto-path"},
		{[]string{"--protos", broken, one}, "broken.proto"},
		{[]string{"--protos", filepath.Join(dir, "none.proto"), one}, "no such file"},
		{[]string{"--protos", one, one, "--out", filepath.Join(dir, "out"), "--from", "x"}, "--from and --to name one kind"},
		{[]string{one, one, "--out", "x"}, "--out needs --protos"},
	} {
		out, _, err := runLensInit(t, tc.args...)
		if exit.Of(err) != exit.Usage || out != "" || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, printed %q", tc.args, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
		t.Error("a refused command wrote a folder")
	}
}
