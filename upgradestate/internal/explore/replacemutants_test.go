package explore_test

import (
	"testing"

	us "dbcontroller.dev/upgradestate"
	"dbcontroller.dev/upgradestate/internal/explore"
)

// TestReplaceMutants breaks what keeps copies of a replaced collection from counting.
func TestReplaceMutants(t *testing.T) {
	t.Parallel()
	spoil := func(by func(d, next *us.Deployment)) func(*explore.Machine) {
		return after(func(d, next *us.Deployment, e us.Event) {
			if _, ok := e.(us.Replace); ok {
				by(d, next)
			}
		})
	}
	hunt(t, map[string]mutant{
		"the shards stay ready": {replaced, "replaced", spoil(func(d, next *us.Deployment) {
			if d.Upgrade != nil {
				next.Upgrade.ReadyShards = us.Clone(*d).Upgrade.ReadyShards
			}
		})},
		"late reports count": {replaced, "replaced", spoil(func(d, next *us.Deployment) {
			if d.Upgrade != nil {
				next.Upgrade.Attempt = d.Upgrade.Attempt
			}
		})},
		"the plan from before it goes on": {replaced, "replaced", spoil(func(d, next *us.Deployment) {
			for i := range next.Namespaces {
				next.Namespaces[i].Images = d.Namespaces[i].Images
			}
		})},
		"nothing is renamed": {replaced, "void", spoil(func(d, next *us.Deployment) {
			dropPending(next, func(version string) bool { return version != d.CurrentVersion })
		})},
		"during a switch": {replaced, "stale", before(func(d *us.Deployment, e us.Event) us.Event {
			if _, ok := e.(us.Replace); ok && d.Upgrade != nil && d.Upgrade.Step == us.StepHold {
				d.Upgrade.State, d.Upgrade.Step = us.InitialSyncing, us.StepNone
			}
			return e
		})},
	})
}
