package cli

import (
	"encoding/json"
	"runtime"
	"testing"

	"dbcontroller.dev/cmd/internal/build"
)

// TestVersion: what a build does not know is said to be unknown, and nothing is empty.
func TestVersion(t *testing.T) {
	t.Parallel()
	out, _, err := run(t, "version")
	if want := "dbcontroller " + build.Read().String() + "\n"; err != nil || out != want {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
	out, _, err = run(t, "version", "--json")
	var info build.Info
	if err != nil || json.Unmarshal([]byte(out), &info) != nil {
		t.Fatalf("%q: %v", out, err)
	}
	if info.Version == "" || info.Commit == "" || info.Date == "" || info.Go != runtime.Version() || info.Platform != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("%+v", info)
	}
}
