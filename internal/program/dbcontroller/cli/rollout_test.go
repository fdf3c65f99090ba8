package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
)

// TestRollout goes through the verbs with a controller's API.
func TestRollout(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	if _, err := deployment.New(w.Coord, "services/shop/deployments/b", deployment.Config{}).Create(t.Context(), "v1", 4); err != nil {
		t.Fatal(err)
	}
	at := serveAPI(t, api.New(w.Coord, w.Store, api.Config{RolloutChecks: []string{"errors"}}))
	waves := filepath.Join(t.TempDir(), "waves.txt")
	if err := os.WriteFile(waves, []byte("# canary\n"+deploymenttest.Name+"\n\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	begin := "rollout begin to-v2 --target-version v2 --waves " + waves + " --check errors --pause 1h"
	for _, tc := range []struct{ args, out, diag, err string }{
		{"rollout list", "NAME  TARGET  STATE  WAVE  STEP  UPGRADED", "", ""},
		{begin + " --dry-run", "", "will: upgrade 1 deployment to v2 in 1 wave", ""},
		{"rollout get to-v2", "", "", "to-v2: rollout does not exist"},
		{begin + " --by ann", "done: to-v2 to v2: RUNNING, wave 1 of 1, UPGRADE", "and these checks pass: errors, and after a pause of 1h0m0s", ""},
		{begin, "nothing changed: to-v2 to v2: RUNNING", "nothing: rollout to-v2 has begun already", ""},
		{"rollout get to-v2", "1     " + deploymenttest.Name + "  -", "", ""},
		{"rollout get to-v2 -o json", `"targetVersion":"v2"`, "", ""},
		{"rollout list", "to-v2  v2      RUNNING  1/1   UPGRADE  0/1", "", ""},
		{"rollout pause to-v2 --reason lunch", "done: to-v2 to v2: PAUSED, wave 1 of 1 (lunch)", "will: begin no further deployment and pass no gate", ""},
		{"rollout resume to-v2", "done: to-v2 to v2: RUNNING", "will: continue with wave 1 of 1", ""},
		{"rollout rollback to-v2 --from-wave 2", "", "", "wave 2 has not begun"},
		{"rollout forget to-v2", "", "", "stop it first"},
		{"rollout stop to-v2", "done: to-v2 to v2: STOPPED", "will: begin no further deployment", ""},
		{"rollout forget to-v2", "done: to-v2", "will: delete the record of rollout to-v2", ""},
		{"rollout begin r --wave services/shop/deployments/b", "", "", "no version given"},
		{"rollout begin r --target-version v2", "", "", "either with --wave or with --waves FILE"},
		{"rollout begin r --target-version v2 --wave a --waves b", "", "", "either with --wave or with --waves FILE"},
		{"rollout begin r --target-version v2 --waves none.txt", "", "", "none.txt: no such file"},
		{"rollout begin r --target-version v2 --wave services/shop/deployments/b --pause 1us", "", "", "--pause 1µs: give whole milliseconds"},
		{"rollout begin r --target-version v2 --wave services/shop/deployments/b", "", "", "has no version v2"},
		{"rollout begin r --target-version v2 --wave ,", "", "", "wave 1 has no deployment"},
		{"rollout rollback r --from-wave -1", "", "", "give a wave from 1"},
	} {
		out, diag, err := run(t, append(strings.Fields(tc.args), "--server", at)...)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(out, tc.out) || !strings.Contains(diag, tc.diag) || !strings.Contains(got, tc.err) || (tc.err == "") != (err == nil) {
			t.Errorf("%s: prints %q, %q and %q, want %q, %q and %q", tc.args, out, diag, got, tc.out, tc.diag, tc.err)
		}
	}
}
