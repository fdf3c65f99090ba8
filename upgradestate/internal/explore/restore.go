package explore

import (
	"fmt"

	us "dbcontroller.dev/upgradestate"
)

// restores adds the restore of the version that is not current, and the reaction of a controller
// that has noticed it. The reaction may also come without a restore.
func restores(d us.Deployment, w *world) []step {
	passive, _ := d.Namespace("v2")
	if d.CurrentVersion == "v2" {
		passive, _ = d.Namespace("v1")
	}
	if passive.Version == "" || us.Retired(d, passive.Version) {
		return nil
	}
	e := us.Rebuild{Version: passive.Version, Seen: passive.Images, Reason: "restored"}
	// The event names the kinds that are not where the record has them.
	for _, k := range passive.Kinds {
		if c := w.colls[place(passive.Version, k.Kind)]; c.name != k.Physical || w.restored {
			e.Found = append(e.Found, us.Place{Kind: k.Kind, Name: c.name, ID: k.ID, Fixed: k.Fixed})
		}
	}
	ss := []step{{event: e, driver: w.restored}}
	// A controller with an older view must not start a second rebuild.
	late := e
	late.Seen.Generation--
	ss = append(ss, step{event: late, stale: true})
	if !w.restored {
		ss = append(ss, step{restore: passive.Version})
	}
	return ss
}

// undecided adds findings about the current version, and operators' decisions about them.
func undecided(d us.Deployment, w *world, add func(driver, stale bool, e us.Event)) {
	other := "v2"
	if d.CurrentVersion == "v2" {
		other = "v1"
	}
	add(false, false, us.FoundRestored{Restored: us.Restored{Version: d.CurrentVersion, What: "seen"}, Epoch: d.Epoch})
	add(false, false, us.FollowRestored{Version: d.CurrentVersion, Epoch: d.Epoch})
	add(false, true, us.FoundRestored{Restored: us.Restored{Version: other, What: "seen"}, Epoch: d.Epoch})
	add(false, true, us.FoundRestored{Restored: us.Restored{Version: d.CurrentVersion, What: "seen"}, Epoch: d.Epoch - 1})
	add(false, true, us.FollowRestored{Version: d.CurrentVersion, Epoch: d.Epoch - 1})
	add(false, true, us.FollowRestored{Version: other, Epoch: d.Epoch})
	if _, found := us.WasRestored(d); found && !w.life {
		add(false, false, us.Begin{ID: fmt.Sprintf("u%d", w.ids+1), TargetVersion: other, TransformHash: "h", Snapshot: true})
	}
}

// restore resets the collections of a version to names from long ago, without marks.
func (w *world) restore(d us.Deployment, version string) {
	w.restored = true
	ns, _ := d.Namespace(version)
	for _, k := range ns.Kinds {
		c := w.colls[place(version, k.Kind)]
		c.name, c.mark = k.Kind+".n0", ""
		if k.Fixed && d.LastSwitch != nil {
			c.name = k.Kind // it was the current one, and open
		}
		hidden := c.name != k.Kind // no controller writes under an application's name
		c.tokens[c.name] = token{apply: hidden, load: hidden && w.loaders, write: d.LastSwitch != nil, read: d.LastSwitch != nil}
	}
}

// rebuilt marks all tokens of controllers for a version void.
func (w *world) rebuilt(version string) {
	for at, c := range w.colls {
		for name, t := range c.tokens {
			if at[:len(version)] == version && t.apply {
				t.void = true
				c.tokens[name] = t
			}
		}
	}
}

// settle ends a restore once the record has the collections at their places.
func (w *world) settle(d us.Deployment) {
	if !w.restored {
		return
	}
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			if ns.Version != d.CurrentVersion && (us.Retired(d, ns.Version) || k.Pending != nil || k.Physical != w.colls[place(ns.Version, k.Kind)].name) {
				return
			}
		}
	}
	w.restored = false
}

// checkVoid checks that after a rebuild no controller that worked before it can still write.
func checkVoid(m Machine, d us.Deployment, version string, k us.Kind, c *coll) error {
	a, ok := us.Followed(d)
	if !ok || a.TargetVersion != version || byMark(k) && !k.Hidden || !m.ApplyAllowed(d) || !c.tokens[c.name].void {
		return nil
	}
	return fmt.Errorf("void: who wrote before everything was made anew still can")
}

// checkFound checks the steps that handle a restored source.
func checkFound(m Machine, s step, d, next us.Deployment) error {
	_, before := us.WasRestored(d)
	_, after := us.WasRestored(next)
	u, n := d.Upgrade, next.Upgrade
	switch s.event.(type) {
	case us.FoundRestored:
		switch {
		case next.Epoch != d.Epoch:
			return nil // no other version had data
		case !after || m.ApplyAllowed(next):
			return fmt.Errorf("undecided: a restored source is applied to the other version")
		case n != nil && !n.Snapshot && (len(n.ReadyShards) > 0 || u.Step != us.StepAbort && n.Attempt == u.Attempt):
			return fmt.Errorf("undecided: reports from before it count")
		}
		// Controllers that have read the source must be fenced out of the following version.
		for _, ns := range next.Namespaces {
			a, ok := us.Followed(next)
			if !ok || a.TargetVersion != ns.Version || n != nil && n.Snapshot {
				continue
			}
			for _, k := range ns.Kinds {
				if k.Pending == nil {
					return fmt.Errorf("undecided: who read the source before still writes to %s", ns.Version)
				}
			}
		}
	case us.FollowRestored:
		if n != nil && (len(n.ReadyShards) > 0 || n.Attempt == u.Attempt) {
			return fmt.Errorf("follow: reports from before it count")
		}
		if last := next.LastSwitch; last != nil && last.Position != "" {
			return fmt.Errorf("follow: a plan from the switch on counts everything as in sync")
		}
	}
	if before && u != nil && n != nil && u.State == us.InitialSyncing && n.State == us.Switching && !u.Snapshot {
		return fmt.Errorf("undecided: a switch begins")
	}
	return nil
}

// checkRebuild checks the step that makes all records again.
func checkRebuild(s step, d, next us.Deployment) error {
	e, ok := s.event.(us.Rebuild)
	if !ok {
		return nil
	}
	was, _ := d.Namespace(e.Version)
	is, _ := next.Namespace(e.Version)
	// Engines resume a plan of the same generation.
	if was.Images.Epoch == d.Epoch && (is.Images.Generation <= was.Images.Generation || is.Images.Fences != 0) {
		return fmt.Errorf("void: a plan from before it goes on")
	}
	if last := next.LastSwitch; last != nil && last.From == e.Version && last.To == next.CurrentVersion && last.Position != "" {
		return fmt.Errorf("void: a plan from the switch on counts everything as in sync")
	}
	u, n := d.Upgrade, next.Upgrade
	if u == nil || n == nil || u.TargetVersion != e.Version || u.Step == us.StepAbort {
		return nil
	}
	switch {
	case len(n.ReadyShards) > 0:
		return fmt.Errorf("void: shards %v are ready", n.ReadyShards)
	case n.Attempt == u.Attempt:
		return fmt.Errorf("void: reports from before it still count")
	case n.Step != us.StepNone && n.Step != us.StepAbort:
		return fmt.Errorf("void: the switch goes on in step %s", n.Step)
	case n.Step == us.StepAbort && n.Again == n.Snapshot && u.Policy.Retries == 0:
		return fmt.Errorf("void: the switch is tried again: %t, to the snapshot: %t", n.Again, n.Snapshot)
	}
	return nil
}

// kept reports whether an operator may have chosen the data of the other version.
func kept(d us.Deployment) bool {
	_, restored := us.WasRestored(d)
	return restored
}
