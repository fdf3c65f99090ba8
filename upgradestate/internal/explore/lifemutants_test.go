package explore_test

import (
	"testing"

	us "dbcontroller.dev/upgradestate"
	"dbcontroller.dev/upgradestate/internal/explore"
)

// blindTo has an event not see a part of the record, which stays as it is.
func blindTo[E us.Event](hide func(*us.Deployment)) func(*explore.Machine) {
	return func(m *explore.Machine) {
		m.Apply = func(d us.Deployment, e us.Event) (us.Deployment, error) {
			if _, ok := e.(E); !ok {
				return us.Apply(d, e)
			}
			seen := us.Clone(d)
			hide(&seen)
			next, err := us.Apply(seen, e)
			if err != nil {
				return d, err
			}
			next.Pace, next.Update = d.Pace, d.Update
			return next, nil
		}
		m.Validate = func(us.Deployment) error { return nil }
	}
}

// TestLifeMutants breaks the rules of what operators may ask for, one at a time.
func TestLifeMutants(t *testing.T) {
	t.Parallel()
	impatient := func(m *explore.Machine) { // its drivers start whatever is ready
		m.Actions = func(d us.Deployment) []us.Action {
			if d.Upgrade != nil && d.Upgrade.State == us.InitialSyncing && us.AllReady(d) {
				return []us.Action{us.StartSwitch{ID: d.Upgrade.ID}}
			}
			return us.Actions(d)
		}
	}
	both := func(a, b func(*explore.Machine)) func(*explore.Machine) {
		return func(m *explore.Machine) { a(m); b(m) }
	}
	hunt(t, map[string]mutant{
		"a switch begins while paused":           {wholeLife, "held back", both(impatient, blindTo[us.StartSwitch](func(d *us.Deployment) { d.Pace.Paused = false }))},
		"a switch begins while data are updated": {wholeLife, "held back", both(impatient, blindTo[us.StartSwitch](func(d *us.Deployment) { d.Update = nil }))},
		"a switch does not wait to be asked for": {wholeLife, "held back", both(impatient, blindTo[us.StartSwitch](func(d *us.Deployment) {
			if d.Upgrade != nil {
				d.Upgrade.Policy.Hold = false
			}
		}))},
		"the way forward from a snapshot is in sync": {wholeLife, "snapshot", after(func(_, next *us.Deployment, e us.Event) {
			if _, ok := e.(us.Flip); ok && next.LastSwitch != nil && next.LastSwitch.Snapshot {
				next.LastSwitch.Position = "here"
			}
		})},
		"a snapshot of what was never left": {wholeLife, "snapshot", func(m *explore.Machine) {
			m.Apply = func(d us.Deployment, e us.Event) (us.Deployment, error) {
				b, ok := e.(us.Begin)
				if !ok || !b.Snapshot {
					return us.Apply(d, e)
				}
				b.Snapshot = false
				next, err := us.Apply(d, b)
				if err == nil && next.Upgrade != nil && d.Upgrade == nil {
					next.Upgrade.Snapshot = true
				}
				return next, err
			}
		}},
		"the flip forgets that it went to a snapshot": {wholeLife, "snapshot", after(func(_, next *us.Deployment, e us.Event) {
			if _, ok := e.(us.Flip); ok && next.LastSwitch != nil {
				next.LastSwitch.Snapshot = false
			}
		})},
		"what is served is retired": {wholeLife, "stale", blind(func(m *explore.Machine) {
			m.Apply = func(d us.Deployment, e us.Event) (us.Deployment, error) {
				if c, ok := e.(us.Complete); ok && d.Upgrade == nil && c.Version == d.CurrentVersion {
					next := us.Clone(d)
					next.Retire = &us.Retire{Version: c.Version}
					return next, nil
				}
				return us.Apply(d, e)
			}
		})},
		"an upgrade begins while its target is dropped": {wholeLife, "retire", blind(func(m *explore.Machine) {
			m.Apply = func(d us.Deployment, e us.Event) (us.Deployment, error) {
				if _, ok := e.(us.Begin); ok && d.Retire != nil {
					seen := us.Clone(d)
					seen.Retire = nil
					next, err := us.Apply(seen, e)
					if err != nil {
						return d, err
					}
					next.Retire = d.Retire
					return next, nil
				}
				return us.Apply(d, e)
			}
		})},
		"a namespace goes without being asked for": {wholeLife, "retire", blind(after(func(d, next *us.Deployment, e us.Event) {
			if _, ok := e.(us.Complete); ok && next.Retire != nil && d.Retire == nil {
				next.Namespaces, next.Retired, next.Retire = next.Namespaces[:1:1], []string{"v2"}, nil
				if d.CurrentVersion == "v2" {
					next.Namespaces, next.Retired = us.Clone(*d).Namespaces[1:], []string{"v1"}
				}
			}
		}))},
		"what is set aside is forgotten": {wholeLife, "retire", after(func(_, next *us.Deployment, e us.Event) {
			if _, ok := e.(us.SetAside); ok {
				next.Kept = nil
			}
		})},
		"setting aside twice keeps it twice": {wholeLife, "valid", after(func(_, next *us.Deployment, e us.Event) {
			if _, ok := e.(us.SetAside); ok && len(next.Kept) == 1 {
				next.Kept = append(next.Kept, next.Kept[0])
			}
		})},
		"pausing twice resumes": {wholeLife, "twice", func(m *explore.Machine) {
			m.Apply = func(d us.Deployment, e us.Event) (us.Deployment, error) {
				if p, ok := e.(us.SetPace); ok && p.Paused != nil && *p.Paused && d.Pace.Paused {
					next := us.Clone(d)
					next.Pace.Paused = false
					return next, nil
				}
				return us.Apply(d, e)
			}
		}},
	})
}
