package explore_test

import (
	"testing"

	us "dbcontroller.dev/upgradestate"
	"dbcontroller.dev/upgradestate/internal/explore"
)

// TestRebuildMutants breaks what keeps a restored database from counting for more than it holds.
func TestRebuildMutants(t *testing.T) {
	t.Parallel()
	rebuilt := func(spoil func(d, next *us.Deployment, e us.Rebuild)) func(*explore.Machine) {
		return after(func(d, next *us.Deployment, e us.Event) {
			if e, ok := e.(us.Rebuild); ok {
				spoil(d, next, e)
			}
		})
	}
	images := func(d *us.Deployment, version string) *us.Images {
		for i := range d.Namespaces {
			if d.Namespaces[i].Version == version {
				return &d.Namespaces[i].Images
			}
		}
		return nil
	}
	hunt(t, map[string]mutant{
		"the plan from before it goes on": {restored, "void", rebuilt(func(d, next *us.Deployment, e us.Rebuild) {
			images(next, e.Version).Generation = images(d, e.Version).Generation
		})},
		"the shards stay ready": {restored, "void", rebuilt(func(d, next *us.Deployment, _ us.Rebuild) {
			if d.Upgrade != nil && d.Upgrade.Step == us.StepNone {
				next.Upgrade.ReadyShards = d.Upgrade.ReadyShards
			}
		})},
		"late reports count": {restored, "void", rebuilt(func(d, next *us.Deployment, _ us.Rebuild) {
			if d.Upgrade != nil && d.Upgrade.Step == us.StepNone {
				next.Upgrade.Attempt = d.Upgrade.Attempt
			}
		})},
		"the switch goes on": {restored, "void", rebuilt(func(d, next *us.Deployment, _ us.Rebuild) {
			if d.Upgrade != nil && d.Upgrade.Step == us.StepDrain {
				next.Upgrade = us.Clone(*d).Upgrade
				next.Upgrade.Attempt++
			}
		})},
		"nothing is renamed": {restored, "void", rebuilt(func(d, next *us.Deployment, e us.Rebuild) {
			dropPending(next, func(version string) bool { return version == e.Version })
		})},
		"a position of the switch before counts": {explore.Config{Shards: 1, Life: true, Restores: true, Kinds: wholeLife.Kinds}, "void", rebuilt(func(d, next *us.Deployment, _ us.Rebuild) {
			next.LastSwitch = us.Clone(*d).LastSwitch
		})},
		"a restored source is applied": {undecided, "undecided", func(m *explore.Machine) {
			m.ApplyAllowed = func(d us.Deployment) bool {
				d = us.Clone(d)
				d.Restored = nil
				for i := range d.Namespaces {
					d.Namespaces[i].Kinds = nil // whatever is pending
				}
				return us.ApplyAllowed(d)
			}
		}},
		"a switch begins for all that": {undecided, "undecided", before(func(d *us.Deployment, e us.Event) us.Event {
			if _, ok := e.(us.StartSwitch); ok {
				d.Restored = nil
			}
			return e
		})},
		"reports to a restored source count": {undecided, "undecided", after(func(d, next *us.Deployment, e us.Event) {
			if _, ok := e.(us.FoundRestored); ok && d.Upgrade != nil && d.Upgrade.Step == us.StepNone {
				next.Upgrade.ReadyShards = d.Upgrade.ReadyShards
			}
		})},
		"reports from before the decision count": {undecided, "follow", after(func(d, next *us.Deployment, e us.Event) {
			if _, ok := e.(us.FollowRestored); ok && d.Upgrade != nil {
				next.Upgrade.Attempt = d.Upgrade.Attempt
			}
		})},
		"older names are not taken over": {restored, "progress", before(func(_ *us.Deployment, e us.Event) us.Event {
			if r, ok := e.(us.Rebuild); ok {
				r.Found = nil
				return r
			}
			return e
		})},
	})
}
