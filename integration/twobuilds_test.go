package integration_test

import (
	"context"
	"errors"
	"os"
	"testing"
)

// olderProgram names the environment variable with the path of an older dbcontroller. make older
// builds one from git.
const olderProgram = "DBCONTROLLER_TEST_OLDER"

// TestTwoBuilds has controllers of an older build and of this one for one deployment, as while the
// tool itself is upgraded, and takes it to v2 and back, twice. Each time the controller that leads is
// killed at ready, so that the other build makes the switch.
func TestTwoBuilds(t *testing.T) {
	older := os.Getenv(olderProgram)
	if older == "" {
		t.Skip("no older build: make older OLDER=TAG")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := newRestorable(ctx, t, "")
	programs := map[string]string{"older": older, "this": built.path(t)}
	running := map[string]*child{}
	run := func(build string) {
		running[build] = r.adopt(spawn(t, build, program(programs[build], []string{"run", "--config", r.config, "--id", build,
			"--api-listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"}, r.env))).ready(ctx)
	}
	run("older")
	run("this")
	from := "v1"
	for i, to := range []string{"v2", "v1", "v2", "v1"} {
		r.awaitShards(ctx, "older", "this")
		r.beginTo(ctx, to)
		r.ready(ctx)
		leader := r.leader(ctx)
		if running[leader] == nil {
			t.Fatalf("leader is %q", leader)
		}
		r.kill(running[leader])
		r.change(ctx, from, int64(i+1))
		eventually(ctx, t, "the other build leads", func() error {
			if now := r.leader(ctx); now == "" || now == leader {
				return errors.New("leader is " + now)
			}
			return nil
		})
		r.ready(ctx)
		r.switches(ctx, to)
		t.Logf("%s made the switch to %s after %s was killed", r.leader(ctx), to, leader)
		from = to
		run(leader)
		r.follows(ctx, map[string]string{"v1": "v2", "v2": "v1"}[to])
	}
	for _, c := range running {
		if code := c.terminate(patience); code != 0 {
			t.Errorf("exit code %d of %s", code, c.name)
		}
	}
}
