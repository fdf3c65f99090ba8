package cli

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	dbv1 "dbcontroller/gen/dbcontroller/v1"
)

func TestCommandsAskForWhatTheyWereTold(t *testing.T) {
	t.Parallel()
	const name = "services/bbs.example.com/deployments/us-west2"
	for _, tc := range []struct {
		line string
		want proto.Message
		out  string
	}{
		{"begin-upgrade deployment --name " + name + " --target-version v2 --total-shards-count 16",
			&dbv1.BeginUpgradeRequest{Name: name, TargetVersion: "v2", TotalShardsCount: 16}, "v1 -> v2, INITIAL_SYNCING"},
		{"begin-upgrade deployment --target-version v2", &dbv1.BeginUpgradeRequest{TargetVersion: "v2"}, "2 of 4 ready"},
		{"get deployment --name " + name, &dbv1.GetDeploymentRequest{Name: name}, "off: nothing was switched yet"},
		{"abort --reason slow --upgrade-id up-1", &dbv1.AbortUpgradeRequest{Reason: "slow", UpgradeId: "up-1"}, name},
		{"abort deployment", &dbv1.AbortUpgradeRequest{}, name},
		{"parked waive --kind packages --key p-17", &dbv1.WaiveParkedRequest{Kind: "packages", Key: "p-17"}, "yes"},
	} {
		t.Run(tc.line, func(t *testing.T) {
			t.Parallel()
			f := &fake{deployment: sample()}
			out, diag, err := run(t, append(strings.Fields(tc.line), "--server", serve(t, f))...)
			if err != nil || diag != "" {
				t.Fatalf("%v, diagnostics %q", err, diag)
			}
			if diff := cmp.Diff(tc.want, f.got, protocmp.Transform()); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if !strings.Contains(out, tc.out) {
				t.Errorf("%q is not in:\n%s", tc.out, out)
			}
		})
	}
}

func TestListsAreShown(t *testing.T) {
	t.Parallel()
	f := &fake{deployment: sample(), parked: []*dbv1.ParkedRecord{{Kind: "packages", Key: "p-17", Error: "no int"}}}
	server := serve(t, f)
	for line, want := range map[string]string{
		"list": "INITIAL_SYNCING", "list --json": `"deployments":[{`, "parked": "p-17", "parked --json": `"key":"p-17"`,
	} {
		out, _, err := run(t, append(strings.Fields(line), "--server", server)...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %q is not in %s", line, err, want, out)
		}
	}
	f.parked = nil
	if out, _, err := run(t, "parked", "--server", server); err != nil || out != "nothing is parked\n" {
		t.Errorf("%v, %q", err, out)
	}
}

func TestWatchEndsAtTheVersionAskedFor(t *testing.T) {
	t.Parallel()
	f := &fake{updates: []*dbv1.Deployment{sample(), switched()}, err: connect.NewError(connect.CodeInternal, errors.New("read past the end"))}
	server := serve(t, f)
	out, _, err := run(t, "watch", "deployment", "--until-version", "v2", "--json", "--server", server)
	if err != nil || strings.Count(out, "\n") != 2 || !strings.Contains(out, `"currentVersion":"v2"`) {
		t.Errorf("%v: %s", err, out)
	}
	out, _, err = run(t, "watch", "deployment", "--until-version", "v2", "--server", server)
	if err != nil || strings.Count(out, "\n") != 2 || strings.Contains(out, "\x1b") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestVerifyTellsTheResultByItsExit(t *testing.T) {
	t.Parallel()
	f := &fake{report: &dbv1.VerifyReport{Equal: true, Compared: 22000, Millis: 1800}}
	server := serve(t, f)
	out, diag, err := run(t, "verify", "--server", server)
	if err != nil || out != "equal: 22,000 groups compared in 1.8s, 0 different\n" || !strings.Contains(diag, "compared 1,500 groups") {
		t.Errorf("%v, %q, diagnostics %q", err, out, diag)
	}
	f.report = &dbv1.VerifyReport{Compared: 22000, Mismatched: 2, Examples: []string{"p-17", "p-18"}, Millis: 1800}
	out, _, err = run(t, "verify", "--server", server)
	if !errors.Is(err, errDifferent) || out != "DIFFERENT: 22,000 groups compared in 1.8s, 2 different\n  p-17\n  p-18\n" {
		t.Errorf("%v, %q", err, out)
	}
	if out, _, err = run(t, "verify", "--json", "--server", server); !errors.Is(err, errDifferent) || !strings.HasPrefix(out, `{"equal":false,`) {
		t.Errorf("%v, %q", err, out)
	}
}

func TestBadInputIsOneClearLine(t *testing.T) {
	t.Setenv(serverEnv, "")
	refusing := serve(t, &fake{err: connect.NewError(connect.CodeFailedPrecondition, errors.New("begin-upgrade: wrong shard count 3: this deployment has a ring of 16"))})
	good := serve(t, &fake{deployment: sample()})
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	foreign := other.Listener.Addr().String()
	gone := closedPort(t)
	for _, tc := range []struct{ line, want string }{
		{"get deployment", "no controller named: give --server HOST:PORT or set DBCONTROLLER_SERVER"},
		{"get deployment --server " + gone, "no controller answers at " + gone + ": start one with 'dbcontroller run', or give another --server"},
		{"watch deployment --server " + gone, "no controller answers at " + gone + ": start one with 'dbcontroller run', or give another --server"},
		{"verify --server http://" + gone + "/", "no controller answers at " + gone + ": start one with 'dbcontroller run', or give another --server"},
		{"get deployment --server " + foreign, "what answers at " + foreign + " is not a controller's API (404 Not Found): give the address of its API with --server"},
		{"begin-upgrade deployment --target-version v2 --total-shards-count 3 --server " + refusing, "begin-upgrade: wrong shard count 3: this deployment has a ring of 16"},
		{"abort --server " + refusing, "begin-upgrade: wrong shard count 3: this deployment has a ring of 16"},
		{"begin-upgrade deployment --server " + good, "no version named: give --target-version, e.g. --target-version v2"},
		{"begin-upgrade deployment --target-version v2 --total-shards-count -1 --server " + good, "--total-shards-count -1: give the ring size of the deployment, or leave it out"},
		{"begin-upgrade", "begin-upgrade what? use 'dbcontroller begin-upgrade deployment'"},
		{"get shards", `get: unknown object "shards": use 'dbcontroller get deployment'`},
		{"get deployment extra --server " + good, `unknown command "extra" for "dbcontroller get deployment"`},
		{"abort services/a/deployments/b --server " + good, `unknown argument "services/a/deployments/b": name the deployment with --name`},
		{"parked waive --kind packages --server " + good, "no record named: give --kind and --key as 'dbcontroller parked' shows them"},
		{"get deployment --sever x", "unknown flag: --sever"},
		{"demo --records 3", "--records 3: give a number from 100 to 5000000"},
		{"demo --server-binary /nowhere/server", `no sample server binary at "/nowhere/server": build it with 'make build', or name it with --server-binary`},
	} {
		t.Run(tc.line, func(t *testing.T) {
			out, _, err := run(t, strings.Fields(tc.line)...)
			if err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
			if out != "" {
				t.Errorf("standard output has %q", out)
			}
		})
	}
}

func TestServerComesFromTheEnvironment(t *testing.T) {
	t.Setenv(serverEnv, serve(t, &fake{deployment: sample()}))
	if out, _, err := run(t, "get", "deployment"); err != nil || !strings.Contains(out, "us-west2") {
		t.Errorf("%v: %s", err, out)
	}
}

// closedPort is an address at which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}
