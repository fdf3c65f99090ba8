package main

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBadInput: a bad call is one clear line, and nothing was started.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"--records 3":                     "--records 3: give a number from 100 to 5000000",
		"--server-binary /nowhere/server": `no sample server binary at "/nowhere/server": build it with 'make build', or name it with --server-binary`,
		"now":                             `unknown command "now" for "demo"`,
		"host":                            "no folder: give --dir; this command is for the demo's own use",
		"controller run":                  "no configuration given: use --config FILE",
	} {
		var out bytes.Buffer
		cmd := command()
		cmd.SetArgs(strings.Fields(line))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		if err := cmd.ExecuteContext(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
		if out.Len() != 0 {
			t.Errorf("%s prints %s", line, &out)
		}
	}
}
