package rollouts

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"dbcontroller.dev/internal/engine/hooks"
	"dbcontroller.dev/internal/engine/rollout"
)

// Check is a check of a gate, from the configuration.
type Check struct {
	Timeout time.Duration
	// Run returns an error unless the check has passed. env names the rollout, its wave and the
	// target. deployments are the names of the wave, one a line.
	Run func(ctx context.Context, env []string, deployments []byte) error
}

// Command returns a check that runs a program. It passes if the program exits with status 0.
func Command(argv []string, timeout time.Duration) Check {
	return Check{Timeout: timeout, Run: func(ctx context.Context, env []string, deployments []byte) error {
		return hooks.RunCommand(ctx, argv, env, deployments)
	}}
}

// longestVariable bounds the names in a variable of the environment. Linux starts no program with a
// longer one than 128 KiB, and a wave of 1,000 deployments may be longer.
const longestVariable = 100 << 10

// check runs the checks of a gate. It returns nothing outside of a gate. A check that this
// controller's configuration lacks has not passed.
func (r *Runner) check(ctx context.Context, ro rollout.Rollout) map[string]string {
	if ro.State != rollout.Running || ro.Step != rollout.StepGate {
		return nil
	}
	var names []string
	for _, item := range ro.Waves[ro.Wave].Items {
		names = append(names, item.Name)
	}
	env := []string{
		"DBCONTROLLER_ROLLOUT=" + ro.Name, fmt.Sprintf("DBCONTROLLER_WAVE=%d", ro.Wave+1),
		"DBCONTROLLER_TARGET_VERSION=" + ro.TargetVersion,
	}
	if all := strings.Join(names, " "); len(all) <= longestVariable {
		env = append(env, "DBCONTROLLER_DEPLOYMENTS="+all)
	}
	lines := []byte(strings.Join(names, "\n") + "\n")
	var mu sync.Mutex
	var running sync.WaitGroup
	all := map[string]string{}
	for _, name := range ro.Policy.Checks {
		running.Go(func() {
			why := fmt.Sprintf("controller %s has no such check in its configuration", r.ID)
			if check, ok := r.Checks[name]; ok {
				why = runCheck(ctx, check, env, lines)
			}
			mu.Lock()
			defer mu.Unlock()
			all[name] = why
		})
	}
	running.Wait()
	return all
}

func runCheck(ctx context.Context, c Check, env []string, deployments []byte) string {
	short, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err := c.Run(short, env, deployments)
	switch {
	case err == nil:
		return ""
	case short.Err() != nil:
		return fmt.Sprintf("no answer within %s", c.Timeout)
	}
	return err.Error()
}
