package explore_test

import (
	"strings"
	"testing"

	us "dbcontroller.dev/upgradestate"
	"dbcontroller.dev/upgradestate/internal/explore"
)

// before breaks a rule by lying to the machine about record or event.
func before(lie func(d *us.Deployment, e us.Event) us.Event) func(*explore.Machine) {
	return func(m *explore.Machine) {
		m.Apply = func(d us.Deployment, e us.Event) (us.Deployment, error) {
			seen := us.Clone(d)
			e = lie(&seen, e)
			next, err := us.Apply(seen, e)
			if err != nil {
				return d, err
			}
			return next, nil
		}
	}
}

// after breaks a rule by changing what the machine wrote.
func after(spoil func(d, next *us.Deployment, e us.Event)) func(*explore.Machine) {
	return func(m *explore.Machine) {
		m.Apply = func(d us.Deployment, e us.Event) (us.Deployment, error) {
			next, err := us.Apply(d, e)
			if err == nil {
				spoil(&d, &next, e)
			}
			return next, err
		}
	}
}

// blind takes away the structural check, so that a mutant is found by what it does.
func blind(mutate func(*explore.Machine)) func(*explore.Machine) {
	return func(m *explore.Machine) {
		mutate(m)
		m.Validate = func(us.Deployment) error { return nil }
	}
}

func eachKind(d *us.Deployment, do func(version string, k *us.Kind)) {
	for i := range d.Namespaces {
		for j := range d.Namespaces[i].Kinds {
			do(d.Namespaces[i].Version, &d.Namespaces[i].Kinds[j])
		}
	}
}

func dropPending(d *us.Deployment, drop func(version string) bool) {
	eachKind(d, func(version string, k *us.Kind) {
		if drop(version) {
			k.Pending = nil
		}
	})
}

func pendingOperations(d us.Deployment) (n int) {
	eachKind(&d, func(_ string, k *us.Kind) {
		if k.Pending != nil {
			n++
		}
	})
	return n
}

func everywhere(string) bool { return true }

// entered reports that the step was entered just now.
func entered(d, next *us.Deployment, step us.Step) bool {
	return next.Upgrade != nil && next.Upgrade.Step == step && (d.Upgrade == nil || d.Upgrade.Step != step)
}

type mutant struct {
	cfg    explore.Config
	wants  string // how the violation begins; the rule that catches the mutant
	mutate func(*explore.Machine)
}

func hunt(t *testing.T, mutants map[string]mutant) {
	for name, tc := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := explore.Real()
			tc.mutate(&m)
			g, err := explore.Run(m, tc.cfg)
			if err == nil {
				t.Fatalf("survived: %d states and no violation", len(g.Records))
			}
			if !strings.HasPrefix(err.Error(), tc.wants) {
				t.Fatalf("found as something else than %q: %v", tc.wants, err)
			}
			rule, _, _ := strings.Cut(err.Error(), "\n")
			t.Logf("%d states: %s", len(g.Records), rule)
		})
	}
}
