package explore

import (
	"fmt"

	us "dbcontroller.dev/upgradestate"
)

// replaces are what a controller does that has found an application's collection replaced. The
// collection keeps its identity here, as one that was away under another name: the machine decides
// nothing by which identity it is.
func replaces(d us.Deployment, add func(driver, stale bool, e us.Event)) {
	ns, _ := d.Namespace(d.CurrentVersion)
	for _, k := range ns.Kinds {
		if !k.Fixed {
			continue
		}
		c := us.Replaced{Kind: k.Kind, Was: k.ID, Is: k.ID, Count: k.Replaced, Detail: "replaced"}
		add(false, d.Upgrade != nil && d.Upgrade.State == us.Switching, us.Replace{Collections: []us.Replaced{c}})
		c.Count++
		add(false, true, us.Replace{Collections: []us.Replaced{c}})
	}
}

// checkReplace checks what must hold of the step that has a replaced collection copied anew.
func checkReplace(s step, d, next us.Deployment) error {
	if _, ok := s.event.(us.Replace); !ok {
		return nil
	}
	if u, n := d.Upgrade, next.Upgrade; u != nil {
		switch {
		case n == nil || n.ID != u.ID:
			return fmt.Errorf("replaced: the upgrade has ended")
		case len(n.ReadyShards) > 0:
			return fmt.Errorf("replaced: shards %v are ready", n.ReadyShards)
		case n.Attempt == u.Attempt:
			return fmt.Errorf("replaced: reports from before it still count")
		}
	}
	for _, ns := range next.Namespaces {
		was, _ := d.Namespace(ns.Version)
		if ns.Version != d.CurrentVersion && was.Images.Epoch == d.Epoch && (ns.Images.Generation <= was.Images.Generation || ns.Images.Fences != 0) {
			return fmt.Errorf("replaced: a plan from before it goes on in %s", ns.Version)
		}
	}
	return nil
}
