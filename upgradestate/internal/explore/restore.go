package explore

import (
	"fmt"

	us "dbcontroller.dev/upgradestate"
)

// restores are the restore of the version that is not current, and what a controller that has
// noticed it does; it may do so without reason as well.
func restores(d us.Deployment, w *world) []step {
	passive, _ := d.Namespace("v2")
	if d.CurrentVersion == "v2" {
		passive, _ = d.Namespace("v1")
	}
	if passive.Version == "" || us.Retired(d, passive.Version) {
		return nil
	}
	e := us.Rebuild{Version: passive.Version, Seen: passive.Images, Reason: "restored"}
	for _, k := range passive.Kinds {
		if c := w.colls[place(passive.Version, k.Kind)]; c.name != k.Physical || w.restored {
			e.Found = append(e.Found, us.Place{Kind: k.Kind, Name: c.name, ID: k.ID, Fixed: k.Fixed})
		}
	}
	ss := []step{{label: fmt.Sprintf("%T%+v", e, e), event: e, driver: w.restored}}
	late := e
	late.Seen.Generation--
	ss = append(ss, step{label: fmt.Sprintf("%T%+v", late, late), event: late, stale: true})
	if !w.restored {
		ss = append(ss, step{label: "restore " + passive.Version, restore: passive.Version})
	}
	return ss
}

// restore brings the collections of a version back to names from long ago, without marks.
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

// rebuilt: what controllers know of the version is void.
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

// settle ends a restore once the record has the collections where they are.
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

// checkVoid: where everything is made anew, nobody can write who worked before. What was reported
// by then counts no more.
func checkVoid(m Machine, d us.Deployment, version string, k us.Kind, c *coll) error {
	a, ok := us.Followed(d)
	if !ok || a.TargetVersion != version || byMark(k) && !k.Hidden || !m.ApplyAllowed(d) || !c.tokens[c.name].void {
		return nil
	}
	return fmt.Errorf("void: who wrote before everything was made anew still can")
}

// checkRebuild checks what must hold of the step that makes everything anew.
func checkRebuild(s step, d, next us.Deployment) error {
	e, ok := s.event.(us.Rebuild)
	if !ok {
		return nil
	}
	was, _ := d.Namespace(e.Version)
	is, _ := next.Namespace(e.Version)
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
