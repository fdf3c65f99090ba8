package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
)

// TestRollback begins the rollback once, whatever is repeated.
func TestRollback(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		last *dbv1.LastSwitch
		want *dbv1.BeginUpgradeRequest // nil: nothing is begun
		err  string
	}{
		{"after a switch", &dbv1.LastSwitch{Id: "up-1", FromVersion: "v1", ToVersion: "v2"}, &dbv1.BeginUpgradeRequest{TargetVersion: "v1", RequestedBy: "me"}, ""},
		{"after the rollback", &dbv1.LastSwitch{Id: "up-2", FromVersion: "v2", ToVersion: "v1", Back: true}, nil, ""},
		{"before any switch", nil, nil, "rollback: no switch was made yet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := clitest.Sample()
			d.LastSwitch = tc.last
			f := &fake{deployment: d}
			out, _, err := run(t, "rollback", "--by", "me", "--server", serve(t, f))
			switch {
			case tc.err != "":
				if err == nil || err.Error() != tc.err {
					t.Errorf("error %v, want %s", err, tc.err)
				}
				return
			case err != nil:
				t.Fatal(err)
			}
			word := "started: v1 -> v2"
			if tc.want == nil {
				word = "nothing changed: v1 -> v2"
			}
			if !strings.HasPrefix(out, word) || strings.Count(out, "\n") != 1 {
				t.Errorf("printed %q, want %q", out, word)
			}
			got, begun := f.got.(*dbv1.BeginUpgradeRequest)
			if begun != (tc.want != nil) {
				t.Fatalf("the last call was %T", f.got)
			}
			if begun {
				if diff := cmp.Diff(tc.want, got, protocmp.Transform()); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// TestRollbackToTheSnapshot counts what is lost first, and goes on only when that is
// accepted.
func TestRollbackToTheSnapshot(t *testing.T) {
	t.Parallel()
	d := clitest.Switched()
	f := &fake{deployment: d, loss: &dbv1.LossReport{Compared: 22000, Created: 17, Changed: 3, Deleted: 1, Examples: []string{"p-17", "p-18"}, Confirm: "d/c/v2"}}
	server := serve(t, f)
	out, diag, err := run(t, "rollback", "--to-snapshot", "--by", "me", "--server", server)
	const want = "rollback: the rollback to the snapshot loses 17 created, 3 changed, 1 deleted since the switch, of 22,000 groups, such as p-17, p-18%s: to accept that, give --accept-loss --confirm d/c/v2"
	if err == nil || err.Error() != fmt.Sprintf(want, "") || out != "" || diag != "compared 1,500 groups\n" {
		t.Errorf("%v\nprinted %q, diagnostics %q", err, out, diag)
	}
	for confirm, doubt := range map[string]string{"": "", "d/staging/v2": `, because "d/staging/v2" confirms something else`} {
		_, _, err := run(t, "rollback", "--to-snapshot", "--accept-loss", "--confirm", confirm, "--server", server)
		if err == nil || err.Error() != fmt.Sprintf(want, doubt) {
			t.Errorf("--confirm %q: %v", confirm, err)
		}
	}
	if _, begun := f.got.(*dbv1.BeginUpgradeRequest); begun {
		t.Fatal("it was begun")
	}
	confirmed := []string{"rollback", "--to-snapshot", "--accept-loss", "--confirm", "d/c/v2", "--by", "me", "--server", server}
	_, diag, err = run(t, confirmed...)
	if err != nil || !strings.Contains(diag, "will lose: 17 created, 3 changed, 1 deleted since the switch, of 22,000 groups\n  p-17\n  p-18\n") {
		t.Errorf("%v, diagnostics %q", err, diag)
	}
	if diff := cmp.Diff(&dbv1.BeginUpgradeRequest{TargetVersion: "v1", ToSnapshot: true, AcceptLoss: true, Confirm: "d/c/v2", RequestedBy: "me"}, f.got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	// A controller that is older would not compare it.
	f.older, f.loss.Confirm = true, ""
	if _, _, err := run(t, "rollback", "--to-snapshot", "--accept-loss", "--server", server); exit.Of(err) != exit.Refused || !strings.Contains(err.Error(), "is older than this command and ignores --confirm") {
		t.Error(err)
	}
	f.older = false
	d.ReverseSync = &dbv1.ReverseSync{Enabled: true}
	if _, _, err := run(t, "rollback", "--to-snapshot", "--accept-loss", "--server", server); err == nil || err.Error() != "rollback: v1 follows v2: use rollback without --to-snapshot, so that nothing is lost; if the database of v2 is lost, see docs/break-glass.md" {
		t.Error(err)
	}
}
