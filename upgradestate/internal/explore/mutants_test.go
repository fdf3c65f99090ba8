package explore_test

import (
	"testing"

	us "dbcontroller.dev/upgradestate"
	"dbcontroller.dev/upgradestate/internal/explore"
)

// TestMutants breaks one rule at a time; the exploration must find each. One that it did
// not find would be a rule without need, or a guarantee without test.
func TestMutants(t *testing.T) {
	t.Parallel()
	hunt(t, map[string]mutant{
		"flip before the last source renames are confirmed": {managedAndView, "flip", before(func(d *us.Deployment, e us.Event) us.Event {
			if _, ok := e.(us.Flip); ok && d.Upgrade != nil && d.Upgrade.Step == us.StepSealSource {
				dropPending(d, everywhere)
			}
			return e
		})},
		"flip before the target's seals are confirmed": {managedAndView, "flip", before(func(d *us.Deployment, e us.Event) us.Event {
			if _, ok := e.(us.Flip); ok && d.Upgrade != nil && d.Upgrade.Step == us.StepSealTarget {
				d.Upgrade.Step = us.StepSealSource
				dropPending(d, everywhere)
			}
			return e
		})},
		"flip without seals and last renames": {managedOnly, "stale read", before(func(d *us.Deployment, e us.Event) us.Event {
			if _, ok := e.(us.Flip); ok && d.Upgrade != nil && d.Upgrade.Step == us.StepDrain {
				d.Upgrade.Step = us.StepSealSource
			}
			return e
		})},
		"no last renames": {managedOnly, "stale read", after(func(d, next *us.Deployment, _ us.Event) {
			if entered(d, next, us.StepSealSource) {
				eachKind(next, func(version string, k *us.Kind) {
					if version == next.CurrentVersion {
						k.Pending, k.Sealed = nil, true
					}
				})
			}
		})},
		"no target seals": {managedOnly, "flip", before(func(d *us.Deployment, e us.Event) us.Event {
			if _, ok := e.(us.Flip); ok && d.Upgrade != nil && d.Upgrade.Step == us.StepSealTarget {
				d.Upgrade.Step = us.StepSealSource
				dropPending(d, everywhere)
				eachKind(d, func(version string, k *us.Kind) { k.Sealed = version == d.CurrentVersion })
			}
			return e
		})},
		"drained without all shards": {managedOnly, "flip", before(func(d *us.Deployment, e us.Event) us.Event {
			if _, ok := e.(us.Drained); ok && d.Upgrade != nil && d.Upgrade.Step == us.StepDrain {
				d.Upgrade.ReadyShards = []int{0, 1}
			}
			return e
		})},
		"a report counts with any fences": {managedOnly, "stale", before(func(d *us.Deployment, e us.Event) us.Event {
			if r, ok := e.(us.Report); ok {
				r.Fences = us.FenceNames(*d)
				return r
			}
			return e
		})},
		"a report counts for any attempt": {managedOnly, "stale", before(func(d *us.Deployment, e us.Event) us.Event {
			if r, ok := e.(us.Report); ok && d.Upgrade != nil {
				r.Attempt = d.Upgrade.Attempt
				return r
			}
			return e
		})},
		"a report counts for any phase": {managedOnly, "stale", before(func(d *us.Deployment, e us.Event) us.Event {
			if r, ok := e.(us.Report); ok && d.Upgrade != nil {
				r.State = d.Upgrade.State
				return r
			}
			return e
		})},
		"a report counts for any upgrade": {managedOnly, "stale", before(func(d *us.Deployment, e us.Event) us.Event {
			if r, ok := e.(us.Report); ok && d.Upgrade != nil {
				r.ID = d.Upgrade.ID
				return r
			}
			return e
		})},
		"ready reports of INITIAL_SYNCING stay for SWITCHING": {managedOnly, "flip", after(func(d, next *us.Deployment, _ us.Event) {
			if entered(d, next, us.StepDrain) {
				next.Upgrade.ReadyShards = []int{0, 1}
			}
		})},
		"a report can be withdrawn after the drain": {managedOnly, "valid", func(m *explore.Machine) {
			m.Apply = func(d us.Deployment, e us.Event) (us.Deployment, error) {
				if w, ok := e.(us.Withdraw); ok && d.Upgrade != nil && d.Upgrade.ID == w.ID && d.Upgrade.Step == us.StepSealSource {
					next := us.Clone(d)
					next.Upgrade.ReadyShards = []int{1}
					return next, nil
				}
				return us.Apply(d, e)
			}
		}},
		"the fence is not waited for": {managedAndView, "fence", after(func(d, next *us.Deployment, _ us.Event) {
			if entered(d, next, us.StepFence) {
				next.Upgrade.Step = us.StepDrain
				eachKind(next, func(version string, k *us.Kind) {
					if version == next.CurrentVersion {
						k.Fenced, k.Pending = k.Pending.To, nil
					}
				})
			}
		})},
		"drain with one of two fences": {managedAndValidator, "fence", blind(after(func(d, next *us.Deployment, e us.Event) {
			if next.Upgrade != nil && next.Upgrade.Step == us.StepFence && pendingOperations(*next) < pendingOperations(*d) {
				next.Upgrade.Step = us.StepDrain
			}
		}))},
		"abort drops announced source renames": {managedOnly, "late operation", after(func(d, next *us.Deployment, _ us.Event) {
			if entered(d, next, us.StepAbort) {
				dropPending(next, func(version string) bool { return version == next.CurrentVersion })
			}
		})},
		"abort does not wait for announced source renames": {managedOnly, "late operation", before(func(d *us.Deployment, e us.Event) us.Event {
			if _, ok := e.(us.Aborted); ok && d.Upgrade != nil && d.Upgrade.Step == us.StepAbort {
				dropPending(d, func(version string) bool { return version == d.CurrentVersion })
			}
			return e
		})},
		"abort drops announced target renames": {managedOnly, "place", after(func(d, next *us.Deployment, _ us.Event) {
			if entered(d, next, us.StepAbort) {
				dropPending(next, func(version string) bool { return version != next.CurrentVersion })
			}
		})},
		"abort leaves the source sealed": {managedOnly, "abort", after(func(d, next *us.Deployment, e us.Event) {
			if _, ok := e.(us.Aborted); ok {
				eachKind(next, func(version string, k *us.Kind) {
					old, _ := d.Namespace(version)
					was, _ := old.Kind(k.Kind)
					k.Sealed = was.Sealed
				})
			}
		})},
		"abort publishes before a rename is resolved": {managedOnly, "place", after(func(d, next *us.Deployment, e us.Event) {
			if entered(d, next, us.StepAbort) {
				dropPending(next, func(version string) bool { return version == next.CurrentVersion })
				next.Upgrade = nil
			}
		})},
		"abort waits for an announced rename": {managedOnly, "abort", func(m *explore.Machine) {
			m.Actions = func(d us.Deployment) []us.Action {
				as := us.Actions(d)
				for i, a := range as {
					if p, ok := a.(us.Prevent); ok {
						as[i] = us.Execute{Version: p.Version, Place: p.Place, Class: p.Class, Pending: p.Pending}
					}
				}
				return as
			}
		}},
		"abort waits for the fence of a view": {managedAndView, "abort", blind(after(func(d, next *us.Deployment, _ us.Event) {
			if entered(d, next, us.StepAbort) && d.Upgrade.Step == us.StepFence {
				eachKind(next, func(version string, k *us.Kind) {
					if version == next.CurrentVersion && k.Fence == "view" && !k.Hidden && k.Pending != nil {
						k.Fenced, k.Pending = "", &us.Pending{Reason: us.PendingFence, From: k.Kind, To: k.Pending.From}
					}
				})
			}
		}))},
		"a rename counts as prevented in any step": {managedOnly, "stale", func(m *explore.Machine) {
			m.Apply = func(d us.Deployment, e us.Event) (us.Deployment, error) {
				if p, ok := e.(us.Prevented); ok {
					next, hit := us.Clone(d), false
					eachKind(&next, func(version string, k *us.Kind) {
						if version == p.Version && k.Kind == p.Kind && k.Pending != nil && k.Pending.To == p.To {
							k.Pending, hit = nil, true
						}
					})
					if hit {
						return next, nil
					}
				}
				return us.Apply(d, e)
			}
		}},
		"a rename counts as prevented under any name": {managedOnly, "stale", before(func(d *us.Deployment, e us.Event) us.Event {
			if p, ok := e.(us.Prevented); ok {
				ns, _ := d.Namespace(p.Version)
				if k, _ := ns.Kind(p.Kind); k.Pending != nil {
					p.To = k.Pending.To
				}
				return p
			}
			return e
		})},
		"a rename counts as prevented without looking": {managedOnly, "late operation", before(func(d *us.Deployment, e us.Event) us.Event {
			if _, ok := e.(us.Aborted); ok && d.Upgrade != nil && d.Upgrade.Step == us.StepAbort {
				eachKind(d, func(version string, k *us.Kind) {
					if version == d.CurrentVersion && k.Pending != nil && k.Pending.Reason != us.PendingOpen {
						k.Pending = nil
					}
				})
			}
			return e
		})},
		"a late abort ends a later attempt": {managedOnly, "stale", before(func(_ *us.Deployment, e us.Event) us.Event {
			if a, ok := e.(us.Abort); ok && a.ID != "" {
				a.Attempt = 0
				return a
			}
			return e
		})},
		"an automatic abort ends an upgrade that does not switch": {managedOnly, "stale", before(func(_ *us.Deployment, e us.Event) us.Event {
			if a, ok := e.(us.Abort); ok && a.Again {
				a.Attempt, a.Again = 0, false
				return a
			}
			return e
		})},
		"a late start begins a later attempt": {managedOnly, "stale", before(func(_ *us.Deployment, e us.Event) us.Event {
			if s, ok := e.(us.StartSwitch); ok {
				s.Attempt = 0
				return s
			}
			return e
		})},
		"shards stay ready after an attempt": {managedOnly, "again", after(func(d, next *us.Deployment, e us.Event) {
			if _, ok := e.(us.Aborted); ok && next.Upgrade != nil {
				next.Upgrade.ReadyShards = []int{0, 1}
			}
		})},
		"an attempt that was given up is not counted": {managedOnly, "attempt", after(func(d, next *us.Deployment, e us.Event) {
			if _, ok := e.(us.Aborted); ok && next.Upgrade != nil {
				next.Upgrade.Attempt = d.Upgrade.Attempt
			}
		})},
		"an operator's abort tries again": {managedOnly, "twice", after(func(d, next *us.Deployment, e us.Event) {
			if a, ok := e.(us.Abort); ok && !a.Again && entered(d, next, us.StepAbort) {
				next.Upgrade.Again = true
			}
		})},
		"an operator's abort is lost in one that tries again": {managedOnly, "again", before(func(d *us.Deployment, e us.Event) us.Event {
			if a, ok := e.(us.Abort); ok && d.Upgrade != nil && d.Upgrade.Again {
				a.Again = true
				return a
			}
			return e
		})},
		"it is tried more often than the policy says": {fewRetries, "again", func(m *explore.Machine) {
			m.Apply = func(d us.Deployment, e us.Event) (us.Deployment, error) {
				a, ok := e.(us.Abort)
				if !ok || !a.Again || d.Upgrade == nil {
					return us.Apply(d, e)
				}
				seen := us.Clone(d)
				seen.Upgrade.Policy.Retries = 0
				next, err := us.Apply(seen, e)
				if next.Upgrade != nil {
					next.Upgrade.Policy = d.Upgrade.Policy
				}
				return next, err
			}
		}},
		"abort does not remove a validator": {managedAndValidator, "late operation", before(func(d *us.Deployment, e us.Event) us.Event {
			if _, ok := e.(us.Aborted); ok && d.Upgrade != nil && d.Upgrade.Step == us.StepAbort {
				dropPending(d, func(version string) bool { return version == d.CurrentVersion })
			}
			return e
		})},
		"abort does not give a view's name back": {managedAndView, "late operation", before(func(d *us.Deployment, e us.Event) us.Event {
			if _, ok := e.(us.Aborted); ok && d.Upgrade != nil && d.Upgrade.Step == us.StepAbort {
				dropPending(d, func(version string) bool { return version == d.CurrentVersion })
			}
			return e
		})},
		"abort keeps the attempt": {managedOnly, "attempt", after(func(d, next *us.Deployment, _ us.Event) {
			if entered(d, next, us.StepAbort) {
				next.Upgrade.Attempt = d.Upgrade.Attempt
			}
		})},
		"a switch starts while a target rename is pending": {managedOnly, "late operation", func(m *explore.Machine) {
			m.Apply = func(d us.Deployment, e us.Event) (us.Deployment, error) {
				_, ok := e.(us.StartSwitch)
				if !ok || d.Upgrade == nil || d.Upgrade.State != us.InitialSyncing {
					return us.Apply(d, e)
				}
				seen := us.Clone(d)
				dropPending(&seen, everywhere)
				next, err := us.Apply(seen, e)
				if err != nil {
					return d, err
				}
				next.Namespaces = us.Clone(d).Namespaces
				return next, nil
			}
		}},
		"a switch starts without all shards": {managedOnly, "attempt", before(func(d *us.Deployment, e us.Event) us.Event {
			if _, ok := e.(us.StartSwitch); ok && d.Upgrade != nil && d.Upgrade.State == us.InitialSyncing {
				d.Upgrade.ReadyShards = []int{0, 1}
			}
			if _, ok := e.(us.Held); ok && d.Upgrade != nil && d.Upgrade.State == us.InitialSyncing {
				d.Upgrade.State, d.Upgrade.Step = us.Switching, us.StepHold
			}
			return e
		})},
		"a confirmation counts under any name": {managedOnly, "stale", before(func(d *us.Deployment, e us.Event) us.Event {
			if c, ok := e.(us.Confirmed); ok {
				ns, _ := d.Namespace(c.Version)
				if k, _ := ns.Kind(c.Kind); k.Pending != nil {
					c.To = k.Pending.To
				}
				return c
			}
			return e
		})},
		"an unfence counts for any fence": {managedAndValidator, "stale", before(func(d *us.Deployment, e us.Event) us.Event {
			if l, ok := e.(us.Unfenced); ok {
				ns, _ := d.Namespace(l.Version)
				if k, _ := ns.Kind(l.Kind); k.Pending != nil {
					l.From = k.Pending.From
				}
				return l
			}
			return e
		})},
		"an opening is confirmed by its name alone": {managedAndView, "stale", before(func(d *us.Deployment, e us.Event) us.Event {
			if c, ok := e.(us.Confirmed); ok {
				ns, _ := d.Namespace(c.Version)
				if k, _ := ns.Kind(c.Kind); k.Pending != nil {
					c.From = k.Pending.From
				}
				return c
			}
			return e
		})},
		"names are used again": {managedOnly, "names", after(func(d, next *us.Deployment, e us.Event) {
			if entered(d, next, us.StepFence) {
				eachKind(next, func(version string, k *us.Kind) {
					if version == next.CurrentVersion {
						k.NextSeq, k.Pending.To = 2, k.Kind+".n1"
					}
				})
			}
		})},
		"a rename is undone on abort": {managedOnly, "names", after(func(d, next *us.Deployment, e us.Event) {
			if _, ok := e.(us.Abort); ok && next.Upgrade != nil {
				eachKind(next, func(version string, k *us.Kind) {
					if version == next.CurrentVersion && k.Fenced != "" && k.Pending == nil {
						k.Pending = &us.Pending{Reason: us.PendingFence, From: k.Physical, To: k.Kind + ".n1"}
					}
				})
			}
		})},
		"the flip keeps the epoch": {managedOnly, "flip", after(func(d, next *us.Deployment, _ us.Event) {
			next.Epoch = d.Epoch
		})},
		"the flip opens fixed kinds without waiting": {managedAndView, "flip", after(func(d, next *us.Deployment, e us.Event) {
			if _, ok := e.(us.Flip); ok {
				eachKind(next, func(version string, k *us.Kind) {
					if version == next.CurrentVersion && k.Fixed {
						k.Physical, k.Hidden, k.Fenced, k.Pending = k.Kind, false, "", nil
					}
				})
			}
		})},
		"a fixed target takes its own name before the flip": {managedAndView, "one writer", blind(after(func(d, next *us.Deployment, _ us.Event) {
			if entered(d, next, us.StepSealTarget) {
				eachKind(next, func(version string, k *us.Kind) {
					if version != next.CurrentVersion && k.Fixed {
						k.Pending = &us.Pending{Reason: us.PendingOpen, From: k.Physical, To: k.Kind}
					}
				})
			}
		}))},
		"the old namespace is opened at the flip": {managedAndValidator, "one writer", blind(after(func(d, next *us.Deployment, e us.Event) {
			if _, ok := e.(us.Flip); ok {
				eachKind(next, func(version string, k *us.Kind) {
					if version != next.CurrentVersion && k.Fixed {
						k.Pending = &us.Pending{Reason: us.PendingOpen, From: k.Fenced, To: k.Physical}
					}
				})
			}
		}))},
		"begin replaces a running upgrade": {managedOnly, "stale", before(func(d *us.Deployment, e us.Event) us.Event {
			if _, ok := e.(us.Begin); ok {
				d.Upgrade = nil
			}
			return e
		})},
		"the argument is modified": {managedOnly, "pure", func(m *explore.Machine) {
			m.Apply = func(d us.Deployment, e us.Event) (us.Deployment, error) {
				next, err := us.Apply(d, e)
				if err == nil && d.Upgrade != nil {
					d.Upgrade.Attempt++
				}
				return next, err
			}
		}},
		"write places in SWITCHING": {managedOnly, "hold", func(m *explore.Machine) {
			m.WritePlaces = func(d us.Deployment) (string, []us.Place) {
				d = us.Clone(d)
				d.Upgrade = nil
				return us.WritePlaces(d)
			}
		}},
		"the next name is not published to readers": {managedOnly, "read", func(m *explore.Machine) {
			m.ReadPlaces = func(d us.Deployment, version string) map[string][]us.Place {
				d = us.Clone(d)
				dropPending(&d, everywhere)
				return us.ReadPlaces(d, version)
			}
		}},
		"the last name is published to readers": {managedOnly, "stale read", func(m *explore.Machine) {
			m.ReadPlaces = func(d us.Deployment, version string) map[string][]us.Place {
				if version == d.CurrentVersion {
					return us.EnginePlaces(d, version)
				}
				return nil
			}
		}},
		"the old version is published to readers": {managedOnly, "stale read", func(m *explore.Machine) {
			m.ReadPlaces = func(d us.Deployment, version string) map[string][]us.Place { return us.EnginePlaces(d, version) }
		}},
		"controllers apply during the seal": {managedOnly, "stale apply", func(m *explore.Machine) {
			m.ApplyAllowed = func(us.Deployment) bool { return true }
		}},
		"no driver completes an abort": {managedOnly, "open", func(m *explore.Machine) {
			m.Actions = func(d us.Deployment) []us.Action {
				if d.Upgrade != nil && d.Upgrade.Step == us.StepAbort {
					return nil
				}
				return us.Actions(d)
			}
		}},
		"no driver completes what an abort left": {managedOnly, "progress", func(m *explore.Machine) {
			m.Actions = func(d us.Deployment) []us.Action {
				if d.Upgrade == nil {
					return nil
				}
				return us.Actions(d)
			}
		}},
	})
}

// mutant is a machine with one rule broken.
