package explore

import (
	"errors"
	"fmt"

	us "dbcontroller.dev/upgradestate"
)

func to[T any](v T) *T { return &v }

// life adds operators' requests besides upgrades and aborts, and the reports that follow from them.
func life(d us.Deployment, w *world, add func(driver, stale bool, e us.Event)) {
	other := "v2"
	if d.CurrentVersion == "v2" {
		other = "v1"
	}
	id := fmt.Sprintf("u%d", w.ids+1)
	add(false, false, us.Begin{ID: id, TargetVersion: other, TransformHash: "h", Policy: us.Policy{Hold: true}})
	add(false, false, us.Begin{ID: id, TargetVersion: other, TransformHash: "h", Snapshot: true})
	add(false, false, us.SetPace{Paused: to(true)})
	add(false, false, us.SetPace{Paused: to(false)})
	add(false, false, us.AskSwitch{})
	add(false, false, us.SetPolicy{Hold: to(true)})
	add(false, false, us.SetPolicy{Hold: to(false)})
	ns, _ := d.Namespace(d.CurrentVersion)
	add(false, false, us.BeginUpdate{Update: us.Update{ID: "d1", Name: "fill", Hash: "h", Version: d.CurrentVersion, Kind: ns.Kinds[0].Kind}})
	add(false, false, us.CancelUpdate{})
	add(false, false, us.Complete{Version: other})
	add(false, false, us.Complete{Version: other, Until: "t1"})
	add(false, false, us.Keep{Version: other, Until: "t2"})
	add(false, false, us.Keep{Version: other})
	// Controllers report the shards of a running update.
	if d.Update != nil {
		for i := range d.RingSize {
			add(true, false, us.UpdateDone{ID: d.Update.ID, Shard: i, Count: us.UpdateCount{Seen: 1}})
		}
		add(false, true, us.UpdateDone{ID: "foreign", Shard: 0})
	}
	// Controllers finish a retirement in either way.
	if d.Retire != nil {
		add(true, false, us.Dropped{Version: d.Retire.Version})
		add(true, false, us.SetAside{Version: d.Retire.Version})
	}
	for _, k := range d.Kept {
		add(true, false, us.Dropped{Version: k.Namespace.Version})
	}
	// All further events are outdated, invalid or for another object, and must change nothing.
	add(false, true, us.SetAside{Version: d.CurrentVersion})
	add(false, true, us.Keep{Version: d.CurrentVersion, Until: "t2"})
	add(false, true, us.Complete{Version: d.CurrentVersion})
	add(false, true, us.Complete{Version: "v9"})
	add(false, true, us.Dropped{Version: d.CurrentVersion})
	add(false, true, us.SetPace{MaxRate: to(-1)})
	add(false, true, us.SetPace{Window: to("25:00-26:00")})
	add(false, true, us.SetPolicy{DeadlineMillis: to(int64(1))})
	add(false, true, us.AskSwitch{ID: "foreign"})
	add(false, true, us.CancelUpdate{ID: "foreign"})
	add(false, true, us.BeginUpdate{Update: us.Update{ID: "d2", Name: "other", Hash: "h", Version: other, Kind: ns.Kinds[0].Kind}})
	if d.Update != nil {
		add(false, true, us.BeginUpdate{Update: us.Update{ID: "d2", Name: "other", Hash: "h", Version: d.CurrentVersion, Kind: ns.Kinds[0].Kind}})
	}
}

// checkLife checks the rules of a step that hold whatever operators request.
func checkLife(m Machine, s step, d, next us.Deployment) error {
	if err := checkTwice(m, s, next); err != nil {
		return err
	}
	u, n := d.Upgrade, next.Upgrade
	// The step starts a switch.
	if u != nil && n != nil && u.State == us.InitialSyncing && n.State == us.Switching {
		switch {
		case d.Pace.Paused:
			return fmt.Errorf("held back: a switch begins while the deployment is paused")
		case u.Policy.Hold && !u.SwitchAsked:
			return fmt.Errorf("held back: a switch begins that was not asked for")
		case d.Update != nil:
			return fmt.Errorf("held back: a switch begins while a data update runs")
		}
	}
	// The step is a flip.
	if next.CurrentVersion != d.CurrentVersion {
		last := next.LastSwitch
		switch {
		case last.Snapshot != u.Snapshot:
			return fmt.Errorf("snapshot: the flip does not say whether it went to the snapshot")
		case last.Snapshot && last.Position != "":
			return fmt.Errorf("snapshot: the way forward would not compare what differs")
		case u.Snapshot && !kept(d) && (d.LastSwitch == nil || d.LastSwitch.From != next.CurrentVersion):
			return fmt.Errorf("snapshot: of %s, which no switch has left", next.CurrentVersion)
		}
	}
	for _, ns := range d.Namespaces {
		if _, there := next.Namespace(ns.Version); !there {
			// A namespace is dropped on request only.
			if d.Retire == nil || d.Retire.Version != ns.Version {
				return fmt.Errorf("retire: the namespace of %s is gone, and nobody asked for it", ns.Version)
			}
			if err := checkGone(s.event, ns, d.Retire.Until, next); err != nil {
				return fmt.Errorf("retire: the namespace of %s is gone by %s: %w", ns.Version, s.label(), err)
			}
		}
	}
	if us.Retired(d, next.CurrentVersion) {
		return fmt.Errorf("retire: %s is served, and its data are going", next.CurrentVersion)
	}
	if next.Retire != nil && next.Upgrade != nil {
		return fmt.Errorf("retire: an upgrade runs at the same time")
	}
	return nil
}

// checkGone checks that a namespace which left the record was dropped, or is kept with all that is
// needed to find its collections.
func checkGone(e us.Event, was us.Namespace, until string, next us.Deployment) error {
	switch e.(type) {
	case us.Dropped:
		return nil
	case us.SetAside:
		for _, k := range next.Kept {
			if k.Namespace.Version == was.Version && len(k.Namespace.Kinds) == len(was.Kinds) && k.Until == until && until != "" {
				return nil
			}
		}
		return errors.New("nobody will drop what was set aside")
	}
	return errors.New("that drops nothing")
}

// checkTwice checks that a repeated request changes nothing.
func checkTwice(m Machine, s step, next us.Deployment) error {
	// Only requests of operators and reports that are repeated after an unknown outcome.
	switch e := s.event.(type) {
	case us.Begin, us.Abort, us.SetPace, us.SetPolicy, us.AskSwitch, us.Complete, us.Keep, us.SetAside, us.BeginUpdate, us.CancelUpdate, us.UpdateDone, us.Dropped:
		again, _ := m.Apply(us.Clone(next), e)
		if !equal(again, next) {
			return fmt.Errorf("twice: %s changes the record a second time", s.label())
		}
	}
	return nil
}
