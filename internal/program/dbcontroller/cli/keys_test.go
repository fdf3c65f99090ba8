package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dbcontroller.dev/config"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
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

// TestKeysNeedAConfiguration: commands that work on databases themselves read which.
func TestKeysNeedAConfiguration(t *testing.T) {
	t.Parallel()
	if _, _, err := run(t, "keys", "admit-plain"); err == nil || exit.Of(err) != exit.Usage {
		t.Errorf("without a configuration: %v", err)
	}
}
