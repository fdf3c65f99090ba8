package explore

import (
	"fmt"

	us "dbcontroller.dev/upgradestate"
)

// replaces adds the event of a controller that has found an application's collection replaced. The
// collection keeps its identity here, like one that was away under another name, since no decision
// of the machine depends on the identity.
func replaces(d us.Deployment, add func(driver, stale bool, e us.Event)) {
	ns, _ := d.Namespace(d.CurrentVersion)
	for _, k := range ns.Kinds {
		if !k.Fixed {
			continue
		}
		c := us.Replaced{Kind: k.Kind, Was: k.ID, Is: k.ID, Count: k.Replaced, Detail: "replaced"}
		add(false, d.Upgrade != nil && d.Upgrade.State == us.Switching, us.Replace{Collections: []us.Replaced{c}})
		// A finder that knows another count is late.
		c.Count++
		add(false, true, us.Replace{Collections: []us.Replaced{c}})
	}
}

// checkReplace checks the step that makes a replaced collection be copied again.
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
		// Engines resume a plan of the same generation.
		if ns.Version != d.CurrentVersion && was.Images.Epoch == d.Epoch && (ns.Images.Generation <= was.Images.Generation || ns.Images.Fences != 0) {
			return fmt.Errorf("replaced: a plan from before it goes on in %s", ns.Version)
		}
	}
	return nil
}
