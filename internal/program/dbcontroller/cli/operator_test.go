package cli

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
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
			&dbv1.BeginUpgradeRequest{Name: name, TargetVersion: "v2", TotalShardsCount: 16, RequestedBy: "me"}, "started: v1 -> v2, INITIAL_SYNCING, 2 of 4 shards ready; hold at ready"},
		{"begin-upgrade deployment --target-version v2", &dbv1.BeginUpgradeRequest{TargetVersion: "v2", RequestedBy: "me"}, "2 of 4 shards ready"},
		{"begin-upgrade --target-version v2", &dbv1.BeginUpgradeRequest{TargetVersion: "v2", RequestedBy: "me"}, "2 of 4 shards ready"}, // the word may be left out
		{"begin-upgrade deployment --target-version v2 --hold --deadline 5s --max-pause 200ms",
			&dbv1.BeginUpgradeRequest{TargetVersion: "v2", Policy: &dbv1.SwitchPolicy{Hold: true, DeadlineMs: 5000, MaxPauseMs: 200}, RequestedBy: "me"}, "hold at ready"},
		{"abort --reason slow --upgrade-id up-1", &dbv1.AbortUpgradeRequest{Reason: "slow", UpgradeId: "up-1", RequestedBy: "me"}, "started: v1 -> v2"},
		// What a dry run has seen is what is meant.
		{"abort deployment", &dbv1.AbortUpgradeRequest{UpgradeId: "up-1", RequestedBy: "me"}, "; 'watch deployment' shows the progress\n"},
		{"switch", &dbv1.SwitchRequest{UpgradeId: "up-1", RequestedBy: "me"}, "started: v1 -> v2"},
		{"set-policy --no-hold --max-pause 1s", &dbv1.SetPolicyRequest{UpgradeId: "up-1", Hold: new(bool), MaxPauseMs: ptr[int64](1000), RequestedBy: "me"}, "done: v1 -> v2"},
		{"set-policy --hold=true --deadline 0", &dbv1.SetPolicyRequest{UpgradeId: "up-1", Hold: ptr(true), DeadlineMs: new(int64), RequestedBy: "me"}, "done: v1 -> v2"},
		{"pause --reason backup", &dbv1.SetPaceRequest{Paused: ptr(true), Reason: ptr("backup"), RequestedBy: "me"}, "PAUSED: backup"},
		{"pause", &dbv1.SetPaceRequest{Paused: ptr(true), RequestedBy: "me"}, "done: v1 -> v2"},
		{"resume", &dbv1.SetPaceRequest{Paused: new(bool), RequestedBy: "me"}, "done: v1 -> v2"},
		{"pace --max-rate 0 --max-source-load 60 --window 22:00-05:00",
			&dbv1.SetPaceRequest{MaxRate: new(int32), MaxSourceLoad: ptr[int32](60), Window: ptr("22:00-05:00"), RequestedBy: "me"}, "source load at most 60 %"},
		{"pace --window any", &dbv1.SetPaceRequest{Window: ptr(""), RequestedBy: "me"}, "done: v1 -> v2"},
		{"complete --version v1 --confirm services/bbs/deployments/eu/replicaSet/c1/mongo:dbc_bbs_v1 --ignore-usage",
			&dbv1.CompleteRequest{Version: "v1", Confirm: "services/bbs/deployments/eu/replicaSet/c1/mongo:dbc_bbs_v1", IgnoreUsage: true, UnusedForMs: 3_600_000, RequestedBy: "me"}, "started: v1 -> v2"},
		{"parked waive --kind packages --key p-17", &dbv1.WaiveParkedRequest{Kind: "packages", Key: "p-17", RequestedBy: "me"}, "waived: packages/p-17\n"},
		{"parked waive --kind packages --all --count 1200", &dbv1.WaiveKindRequest{Kind: "packages", Count: ptr[int64](1200), RequestedBy: "me"}, "waived: 1,200 of packages"},
	} {
		t.Run(tc.line, func(t *testing.T) {
			t.Parallel()
			f := &fake{deployment: clitest.Sample()}
			f.deployment.Effects = []string{"do something", "nothing: else"}
			args := append(strings.Fields(tc.line), "--by", "me", "--server", serve(t, f))
			_, diag, err := run(t, append(args, "--dry-run")...)
			if err != nil || !strings.HasPrefix(diag, "will: ") || strings.Contains(diag, "will: nothing") {
				t.Fatalf("dry: %v, diagnostics %q", err, diag)
			}
			if len(f.dry) != 1 || f.got != f.dry[0] {
				t.Fatalf("a dry run has sent %v", f.got)
			}
			out, diag, err := run(t, args...)
			if err != nil || !strings.HasPrefix(diag, "will: ") || strings.Contains(diag, "did: ") {
				t.Fatalf("%v, diagnostics %q", err, diag)
			}
			if len(f.dry) != 2 {
				t.Errorf("%d dry runs", len(f.dry))
			}
			if diff := cmp.Diff(tc.want, f.got, protocmp.Transform()); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if !strings.Contains(out, tc.out) || strings.Count(out, "\n") != 1 {
				t.Errorf("%q is not in one line:\n%s", tc.out, out)
			}
			out, _, err = run(t, append(args, "-o", "json")...)
			if err != nil || !strings.HasPrefix(out, "{") {
				t.Errorf("as JSON: %v, %q", err, out)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

// TestGetAsksByName: what only looks is not announced.
func TestGetAsksByName(t *testing.T) {
	t.Parallel()
	f := &fake{deployment: clitest.Sample()}
	out, diag, err := run(t, "get", "deployment", "--name", "services/a/deployments/b", "--server", serve(t, f))
	if err != nil || diag != "" || !strings.Contains(out, "off: no switch was made yet") {
		t.Errorf("%v, diagnostics %q:\n%s", err, diag, out)
	}
	if diff := cmp.Diff(&dbv1.GetDeploymentRequest{Name: "services/a/deployments/b"}, f.got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// TestBeginSetsThePaceFirst, once everything was allowed.
func TestBeginSetsThePaceFirst(t *testing.T) {
	t.Parallel()
	f := &fake{deployment: clitest.Sample()}
	line := "begin-upgrade deployment --target-version v2 --max-rate 500 --by me --server " + serve(t, f)
	if _, _, err := run(t, strings.Fields(line)...); err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, m := range append(f.dry, f.got) {
		asked = append(asked, string(m.ProtoReflect().Descriptor().Name()))
	}
	if diff := cmp.Diff([]string{"SetPaceRequest", "BeginUpgradeRequest", "BeginUpgradeRequest"}, asked); diff != "" {
		t.Error(diff)
	}
}

func TestHistoryIsShown(t *testing.T) {
	t.Parallel()
	server := serve(t, &fake{deployment: clitest.Sample()})
	out, _, err := run(t, "history", "--server", server)
	if err != nil {
		t.Fatal(err)
	}
	clitest.Golden(t, "testdata/history.txt", out)
	out, _, err = run(t, "history", "--json", "--server", server)
	if err != nil || strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, `{"history":[{"at":"2026-11-20T22:00:00.5Z","by":"ann@desk","what":"upgrade"`) {
		t.Errorf("%v: %s", err, out)
	}
	if out, _, err = run(t, "history", "--server", serve(t, &fake{deployment: &dbv1.Deployment{}})); err != nil || out != "nothing has happened yet\n" {
		t.Errorf("%v: %q", err, out)
	}
}

func TestListsAreShown(t *testing.T) {
	t.Parallel()
	f := &fake{deployment: clitest.Sample(), parked: []*dbv1.ParkedRecord{{Kind: "packages", Key: "p-17", Error: "no int"}}}
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
	f := &fake{updates: []*dbv1.Deployment{clitest.Sample(), clitest.Switched()}, err: connect.NewError(connect.CodeInternal, errors.New("read past the end"))}
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
	f.report = &dbv1.VerifyReport{Equal: true, Compared: 22000, Waived: 1200, WaivedExamples: []string{"p-16"}, Millis: 1800}
	out, _, err = run(t, "verify", "--server", server)
	if err != nil || out != "equal: 22,000 groups compared in 1.8s, 0 different, 1,200 waived\n  p-16 (waived)\n" {
		t.Errorf("%v, %q", err, out)
	}
	if out, _, err = run(t, "verify", "--json", "--server", server); err != nil || !strings.Contains(out, `"waived":"1200","waivedExamples":["p-16"]`) {
		t.Errorf("%v, %q", err, out)
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
	good := serve(t, &fake{deployment: clitest.Sample()})
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	foreign := other.Listener.Addr().String()
	gone := accesstest.ClosedPort(t)
	for _, tc := range []struct{ line, want string }{
		{"get deployment", "no controller given: use --server HOST:PORT, set DBCONTROLLER_SERVER, or store one with 'dbcontroller context set'"},
		{"get deployment --server " + gone, "no controller answers at " + gone + ": start one with 'dbcontroller run', or give another --server"},
		{"watch deployment --server " + gone, "no controller answers at " + gone + ": start one with 'dbcontroller run', or give another --server"},
		{"verify --server http://" + gone + "/", "no controller answers at " + gone + ": start one with 'dbcontroller run', or give another --server"},
		{"get deployment --server " + foreign, "the server at " + foreign + " is not a controller's API (404 Not Found): give the address of the API with --server"},
		{"begin-upgrade deployment --target-version v2 --total-shards-count 3 --server " + refusing, "begin-upgrade: wrong shard count 3: this deployment has a ring of 16"},
		{"abort --server " + refusing, "begin-upgrade: wrong shard count 3: this deployment has a ring of 16"},
		{"begin-upgrade deployment --server " + good, "no version given: use --target-version, e.g. --target-version v2"},
		{"begin-upgrade deployment --target-version v2 --total-shards-count -1 --server " + good, "--total-shards-count -1: give the ring size of the deployment, or omit the flag"},
		{"begin-upgrade", "no version given: use --target-version, e.g. --target-version v2"},
		{"get shards", `get: unknown object "shards": use 'dbcontroller get deployment'`},
		{"get deployment extra --server " + good, `unknown command "extra" for "dbcontroller get deployment"`},
		{"abort services/a/deployments/b --server " + good, `unknown argument "services/a/deployments/b": give the deployment with --name`},
		{"parked waive --kind packages --server " + good, "no record given: use --kind and --key with values from 'dbcontroller parked'"},
		{"get deployment --sever x", "unknown flag: --sever"},
		{"pace --server " + good, "nothing to set: give --max-rate, --max-source-load or --window"},
		{"pace --max-rate -1 --server " + good, "--max-rate -1: give records a second, or 0 for as configured"},
		{"pace --max-source-load 101 --server " + good, "--max-source-load 101: give percent from 1 to 100, or 0 for as configured"},
		{"pace --window 22:00 --server " + refusing, "begin-upgrade: wrong shard count 3: this deployment has a ring of 16"},
		{"begin-upgrade deployment --target-version v2 --deadline -5s --server " + good, "--deadline -5s: give whole milliseconds from 0, such as 10s"},
		{"begin-upgrade deployment --target-version v2 --max-pause 10us --server " + good, "--max-pause 10µs: give whole milliseconds from 0, such as 10s"},
		{"begin-upgrade deployment --target-version v2 --max-rate -2 --server " + good, "--max-rate -2: give records a second, or 0 for as configured"},
		{"set-policy --server " + good, "nothing to set: give --hold, --no-hold, --deadline, --max-pause, --max-hold or --retries"},
		{"set-policy --retries 4294967297 --server " + good, "--retries 4294967297: give -1 to 2147483647"},
		{"begin-upgrade deployment --target-version v2 --retries 4294967297 --server " + good, "--retries 4294967297: give -1 to 2147483647"},
		{"set-policy --hold --no-hold --server " + good, "--hold and --no-hold: give only one of them"},
		{"switch now --server " + good, `unknown argument "now": give the deployment with --name`},
		{"complete --confirm x --server " + good, "no version given: use --version, e.g. --version v1"},
		{"complete --version v1 --unused-for -1h --server " + good, "--unused-for -1h0m0s: give whole milliseconds from 0, such as 10s"},
		{"complete --version v1 --server " + refusing, "begin-upgrade: wrong shard count 3: this deployment has a ring of 16"},
		{"rollback --to-snapshot --confirm x --server " + good, "--confirm: give it together with --accept-loss"},
		{"rollback --accept-loss --server " + good, "--accept-loss: without --to-snapshot nothing is lost: omit the flag"},
		{"parked waive --kind packages --all --server " + good, "waive: it would let the switch continue without packages; to do that, give --count 1200"},
		{"parked waive --kind packages --key p --count 1 --server " + good, "--count: give it only with --all"},
		{"parked waive --all --server " + good, "no kind given: use --kind with a kind from 'dbcontroller parked'"},
		{"parked waive --kind packages --key p --all --server " + good, "--key and --all: give only one of them"},
	} {
		t.Run(tc.line, func(t *testing.T) {
			out, _, err := run(t, strings.Fields(tc.line)...)
			if err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
			if e := exit.Of(err); e == exit.Done || e == exit.Findings || e >= exit.Timeout {
				t.Errorf("exit status %d", e)
			}
			if out != "" {
				t.Errorf("standard output has %q", out)
			}
		})
	}
}

func TestServerComesFromTheEnvironment(t *testing.T) {
	t.Setenv(serverEnv, serve(t, &fake{deployment: clitest.Sample()}))
	if out, _, err := run(t, "get", "deployment"); err != nil || !strings.Contains(out, "us-west2") {
		t.Errorf("%v: %s", err, out)
	}
}
