package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dbcontroller.dev/config"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/internal/store/sealed"
)

// TestNewKey: a key is for its owner alone, another one each time, and never replaced.
func TestNewKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var keys []config.KeyFile
	for _, name := range []string{"a001", "a002"} {
		file := filepath.Join(dir, name)
		out, _, err := run(t, "keys", "new", file)
		if err != nil || !strings.HasPrefix(out, "wrote a new key to "+file) {
			t.Fatalf("%v, %q", err, out)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		keys = append(keys, config.KeyFile{Name: name, Path: file})
	}
	read, err := config.Encryption{Keys: keys, Active: "a001"}.Read()
	if err != nil || string(read[0]) == string(read[1]) {
		t.Errorf("%d keys, %v, and they are different: %t", len(read), err, string(read[0]) != string(read[1]))
	}
	before, err := os.ReadFile(keys[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = run(t, "keys", "new", keys[0].Path)
	if err == nil || exit.Of(err) != exit.Usage || !strings.Contains(err.Error(), "exists already, and keys are never replaced") {
		t.Errorf("%v", err)
	}
	if after, _ := os.ReadFile(keys[0].Path); string(after) != string(before) {
		t.Error("the key was replaced")
	}
	if _, _, err := run(t, "keys", "new", filepath.Join(dir, "none", "key")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	if _, _, err := run(t, "keys"); err == nil || err.Error() != "keys: no object given: use 'dbcontroller keys new'" {
		t.Error(err)
	}
}

func TestRotateKeys(t *testing.T) {
	t.Parallel()
	f := &fake{deployment: clitest.Sample()}
	f.deployment.Effects = []string{"run it"}
	server := "--server=" + serve(t, f)
	_, diag, err := run(t, "keys", "rotate", "--by=ann", server)
	asked, _ := f.got.(*dbv1.BeginUpdateRequest)
	if err != nil || diag != "will: run it\n" || asked.GetDryRun() || asked.GetTask() != "rotate-keys" || asked.GetRequestedBy() != "ann" {
		t.Errorf("%v, %q, %v", err, diag, f.got)
	}
}

// TestAdmitPlain: an operator has plain records taken for records, of a version that has any.
func TestAdmitPlain(t *testing.T) {
	t.Parallel()
	if _, _, err := run(t, "keys", "admit-plain"); err == nil || exit.Of(err) != exit.Usage {
		t.Errorf("without a configuration: %v", err)
	}
	keys, err := sealed.NewKeys("a001", sealed.Key{Name: "a001", Bytes: make([]byte, sealed.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	notes := &recordtest.Notes{}
	s := sealed.New("v1", func() *sealed.Keys { return keys }, notes)
	first, err := s.First(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if changes, err := acceptKeys(t.Context(), "v1", s, false, &out); err != nil || !changes || !strings.Contains(out.String(), "written with off, and may be encrypted with off; fields that stay readable: none") {
		t.Errorf("%t, %v, %q", changes, err, &out)
	}
	if _, _, err := s.Noted(t.Context()); err != nil {
		t.Error(err)
	}
	// The operator is asked to believe this line, so the mark must add none.
	forge := func(fields map[string][]string) {
		t.Helper()
		if err := notes.Change(t.Context(), func(st *sealed.State) (bool, error) { st.Clear = fields; return true, nil }); err != nil {
			t.Fatal(err)
		}
	}
	forge(map[string][]string{"users\nFORGED row": {"x"}})
	out.Reset()
	if _, err := acceptKeys(t.Context(), "v1", s, false, &out); err != nil || strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), `users\nFORGED row (x)`) {
		t.Errorf("of a mark with a line of its own: %v, %q", err, &out)
	}
	forge(nil)
	if _, err := s.State(t.Context()); !errors.Is(err, sealed.ErrState) {
		t.Errorf("it is accepted without a confirmation: %v", err)
	}
	if _, err := acceptKeys(t.Context(), "v1", s, true, &out); err != nil {
		t.Error(err)
	}
	if changes, err := acceptKeys(t.Context(), "v1", s, false, &out); err != nil || changes {
		t.Errorf("the second time: %t, %v", changes, err)
	}
	plain, err := notes.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s = sealed.New("v1", func() *sealed.Keys { return keys }, notes) // a process of its own for each command
	for _, step := range []struct {
		state sealed.State
		want  string
	}{
		{sealed.State{New: true}, "v1 is not used yet"},
		{sealed.State{}, "the state of keys in the database's mark is refused"},
		{plain, "may be plain already"},
		{*first, "plain records of v1 are accepted until a rotation ends"},
	} {
		if err := notes.Change(t.Context(), func(st *sealed.State) (bool, error) { *st = step.state; return true, nil }); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		changes, err := admitPlain(t.Context(), "v1", s, false, &out)
		if changes {
			if st, _ := s.State(t.Context()); st.Promised() == "" || out.Len() > 0 {
				t.Errorf("without a confirmation: %+v, %s", st, &out)
			}
			_, err = admitPlain(t.Context(), "v1", s, true, &out)
		}
		if said := out.String() + fmt.Sprint(err); !strings.Contains(said, step.want) {
			t.Errorf("%+v: %s, want %q", step.state, said, step.want)
		}
	}
	if st, err := s.State(t.Context()); err != nil || strings.Join(st.InUse(), " ") != "a001 off" || st.Promised() != "" {
		t.Errorf("%+v, %v", st, err)
	}
}
