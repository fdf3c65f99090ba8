package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	dbv1 "dbcontroller/gen/dbcontroller/v1"
)

// TestRollback begins the way back once, whatever is repeated.
func TestRollback(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		last *dbv1.LastSwitch
		want *dbv1.BeginUpgradeRequest // nil: nothing is begun
		err  string
	}{
		{"after a switch", &dbv1.LastSwitch{Id: "up-1", FromVersion: "v1", ToVersion: "v2"}, &dbv1.BeginUpgradeRequest{TargetVersion: "v1"}, ""},
		{"after the way back", &dbv1.LastSwitch{Id: "up-2", FromVersion: "v2", ToVersion: "v1", Back: true}, nil, ""},
		{"before any switch", nil, nil, "rollback: nothing was switched yet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := sample()
			d.LastSwitch = tc.last
			f := &fake{deployment: d}
			out, _, err := run(t, "rollback", "--server", serve(t, f))
			switch {
			case tc.err != "":
				if err == nil || err.Error() != tc.err {
					t.Errorf("error %v, want %s", err, tc.err)
				}
				return
			case err != nil:
				t.Fatal(err)
			}
			if !strings.Contains(out, d.GetName()) {
				t.Errorf("printed %q", out)
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
