package cli

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/program/build"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
)

// versioned is a controller that says which build it is.
type versioned struct{ fake }

func (*versioned) GetVersion(context.Context, *connect.Request[dbv1.GetVersionRequest]) (*connect.Response[dbv1.Version], error) {
	return connect.NewResponse(&dbv1.Version{Version: "v1.4.0", Commit: "abc", Date: "2026-11-20T10:00:00Z", Go: "go1.26", Platform: "linux/arm64", Protocol: 1, Format: 2}), nil
}

// TestVersionOfAController: that of this program, and of the one that answers.
func TestVersionOfAController(t *testing.T) {
	t.Parallel()
	at := serveAPI(t, &versioned{})
	here := "dbcontroller " + build.Read().String() + "\n"
	out, _, err := run(t, "version", "--server", at)
	if want := here + "controller v1.4.0 (commit abc of 2026-11-20T10:00:00Z; go1.26, linux/arm64); servers speak protocol 1 or a newer one, records have format 2\n"; err != nil || out != want {
		t.Errorf("%v\n%s\n%s", err, out, want)
	}
	out, _, err = run(t, "version", "-o", "json", "--server", at)
	if err != nil || !strings.Contains(out, `"controller":{"version":"v1.4.0"`) || !strings.Contains(out, `"format":2`) {
		t.Errorf("%v %s", err, out)
	}
	if out, _, err = run(t, "version", "--server", serve(t, &fake{older: true})); err != nil || out != here+"controller an older version that does not report its number\n" {
		t.Errorf("of an older one: %v %s", err, out)
	}
	if out, _, err = run(t, "version", "--server", accesstest.ClosedPort(t)); exit.Of(err) != exit.Unreachable || out != "" {
		t.Errorf("nobody answers: %v %s", err, out)
	}
}

// TestVersion: what a build does not know is said to be unknown, and nothing is empty.
func TestVersion(t *testing.T) {
	t.Parallel()
	out, _, err := run(t, "version")
	if want := "dbcontroller " + build.Read().String() + "\n"; err != nil || out != want {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
	if out, _, err = run(t, "--version"); err != nil || out != "dbcontroller "+build.Read().String()+"\n" {
		t.Errorf("--version: %q, %v", out, err)
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
