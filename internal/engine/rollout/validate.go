package rollout

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"dbcontroller.dev/internal/base/limits"
)

// Limits of a rollout. They bound the size of its record.
const (
	MaxDeployments = 1000
	MaxChecks      = 10
	maxDuration    = 7 * 24 * time.Hour
)

// Defaults of a policy.
const (
	DefaultHold      = 30 * time.Second
	DefaultGateLimit = 10 * time.Minute
)

var (
	nameForm       = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	deploymentForm = regexp.MustCompile(`^services/[A-Za-z0-9][A-Za-z0-9._-]*/deployments/[A-Za-z0-9][A-Za-z0-9._-]*$`)
	versionForm    = regexp.MustCompile(`^[a-z][a-z0-9]*(@[a-z0-9][a-z0-9-]{0,31})?$`)
)

// CheckName returns why a rollout or a check cannot have a name, nil if it can.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("name %q: want up to 63 lower-case letters, digits and dashes", shorten(name, 70))
	}
	return nil
}

// New returns a rollout that begins with its first wave.
func New(name, id, target string, waves [][]string, p Policy, by string, at time.Time) Rollout {
	r := Rollout{
		Format: Format, Name: name, ID: id, TargetVersion: target, Policy: p, State: Running, Step: StepUpgrade,
		By: by, Began: at,
	}
	for _, names := range waves {
		var w Wave
		for _, n := range names {
			w.Items = append(w.Items, Item{Name: n})
		}
		r.Waves = append(r.Waves, w)
	}
	r.Note(at, by, "begin")
	return r
}

// Validate returns why a record must not be stored or acted on, nil if it is valid.
func Validate(r Rollout) error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	switch {
	case r.ID == "":
		return fmt.Errorf("the rollout has no id")
	case !versionForm.MatchString(r.TargetVersion):
		return fmt.Errorf("target version %q: want a version such as v2", shorten(r.TargetVersion, 70))
	case len(r.Waves) == 0:
		return fmt.Errorf("no waves: give at least one")
	case !slices.Contains([]State{Running, Paused, Stopped, RollingBack, RolledBack, Done}, r.State):
		return fmt.Errorf("unknown state %q", r.State)
	case !slices.Contains([]Step{StepUpgrade, StepGate, StepPause}, r.Step):
		return fmt.Errorf("unknown step %q", r.Step)
	case r.Wave < 0 || r.Wave >= len(r.Waves), r.BackTo < 0 || r.BackTo >= len(r.Waves):
		return fmt.Errorf("wave %d of %d does not exist", r.Wave, len(r.Waves))
	}
	seen := map[string]int{}
	for w := range r.Waves {
		if len(r.Waves[w].Items) == 0 {
			return fmt.Errorf("wave %d has no deployment", w+1)
		}
		for _, i := range r.Waves[w].Items {
			// No controller would ever act on such a name.
			if len(i.Name) > limits.NameBytes || !deploymentForm.MatchString(i.Name) {
				return fmt.Errorf("wave %d: deployment name %q: want services/{service}/deployments/{region}", w+1, shorten(i.Name, 70))
			}
			// In two waves, one gate would judge an upgrade that another wave began.
			if before, twice := seen[i.Name]; twice {
				return fmt.Errorf("%s is in wave %d and in wave %d: name it once", i.Name, before, w+1)
			}
			seen[i.Name] = w + 1
		}
	}
	if len(seen) > MaxDeployments {
		return fmt.Errorf("%d deployments: want at most %d in one rollout", len(seen), MaxDeployments)
	}
	return r.Policy.validate()
}

func (p Policy) validate() error {
	for name, n := range map[string]int64{"pause": p.PauseMillis, "hold": p.HoldMillis, "gate limit": p.GateLimitMillis, "wave limit": p.WaveLimitMillis, "lag": p.MaxLagMillis} {
		if n < 0 || millis(n) > maxDuration {
			return fmt.Errorf("%s of %d ms: want 0 to %s", name, n, maxDuration)
		}
	}
	switch {
	// Such a gate could not pass.
	case p.GateLimitMillis <= p.HoldMillis:
		return fmt.Errorf("gate limit of %s: want longer than the hold of %s", millis(p.GateLimitMillis), millis(p.HoldMillis))
	case p.OnFailure != StopOnly && p.OnFailure != RollBackToo:
		return fmt.Errorf("on failure %q: want stop or rollback", shorten(string(p.OnFailure), 20))
	case len(p.Checks) > MaxChecks:
		return fmt.Errorf("%d checks: want at most %d", len(p.Checks), MaxChecks)
	}
	for i, c := range p.Checks {
		if err := CheckName(c); err != nil {
			return fmt.Errorf("check: %w", err)
		}
		if slices.Contains(p.Checks[:i], c) {
			return fmt.Errorf("check %s is given twice", c)
		}
	}
	return nil
}

// maxDetail bounds the details of a deployment, to keep the record small.
const maxDetail = 300

// Report returns the record with a controller's reason why an order does not go on. "" removes it.
// ok is false if nothing changes.
func Report(r Rollout, name, id, why string) (next Rollout, ok bool) {
	why = shorten(strings.ReplaceAll(why, "\n", " "), maxDetail)
	for w := range r.Waves {
		for i, item := range r.Waves[w].Items {
			// A later order is not meant.
			if item.Name == name && item.ID == id && item.Result == inProgress && item.Detail != why {
				next = Clone(r)
				next.Waves[w].Items[i].Detail = why
				return next, true
			}
		}
	}
	return r, false
}

func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
