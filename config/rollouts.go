package config

import (
	"fmt"
	"slices"
	"time"
)

// DefaultCheckTimeout is the time that a check of a rollout may take.
const DefaultCheckTimeout = 30 * time.Second

// maxChecks bounds the checks of a configuration.
const maxChecks = 50

// RolloutCheck is a command that decides whether the gate of a rollout may pass. It passes if the
// program exits with status 0. Only the configuration has commands: a caller of the API names a
// check, and cannot run a program.
type RolloutCheck struct {
	Name    string
	Command []string // program and arguments
	Timeout time.Duration
}

func (r *reader) rolloutChecks(n node) []RolloutCheck {
	items := r.list(r.mapping(n, "checks")["checks"])
	if len(items) > maxChecks {
		r.fail(n, fmt.Sprint(len(items)), fmt.Sprintf("want at most %d checks", maxChecks))
	}
	var all []RolloutCheck
	for _, item := range items {
		m := r.mapping(item, "name", "command", "timeout")
		c := RolloutCheck{
			Name:    r.required(m["name"], "a name such as errors"),
			Command: r.command(m["command"], ""),
			Timeout: r.duration(m["timeout"], DefaultCheckTimeout, time.Second, 5*time.Minute),
		}
		if !hookName.MatchString(c.Name) {
			r.fail(m["name"], c.Name, "want up to 32 lower-case letters, digits and dashes")
		}
		if slices.ContainsFunc(all, func(o RolloutCheck) bool { return o.Name == c.Name }) {
			r.fail(m["name"], c.Name, "given twice, want a name for each check")
		}
		all = append(all, c)
	}
	return all
}
