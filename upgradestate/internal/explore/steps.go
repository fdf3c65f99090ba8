package explore

import (
	"cmp"
	"fmt"
	"slices"

	us "dbcontroller.dev/upgradestate"
)

// step is one possible next step.
type step struct {
	event   us.Event
	driver  bool
	fence   bool    // a command that the database may hold up forever
	stale   bool    // must not change the record
	at      string  // place of a command
	command command // the command, if event is nil
	restore string  // the version whose database is restored
	truly   []int   // for a report: shards that have really drained to the fences in force
}

// label describes the step. Only a violation needs it, and formatting is slow.
func (s step) label() string {
	switch {
	case s.restore != "":
		return "restore " + s.restore
	case s.event != nil:
		return fmt.Sprintf("%T%+v", s.event, s.event)
	default:
		return fmt.Sprintf("at %s: %+v", s.at, s.command)
	}
}

// take makes the step. changed is false if it changes nothing.
func (s step) take(m Machine, d us.Deployment, w *world) (next us.Deployment, after *world, changed bool, err error) {
	if s.restore != "" {
		after = w.clone()
		after.restore(d, s.restore)
		return d, after, true, nil
	}
	if s.event == nil {
		after = w.clone()
		after.colls[s.at].do(s.command)
		return d, after, true, nil
	}
	next, err = m.Apply(d, s.event)
	if same := equal(next, d); err != nil || same {
		// A refused event must return the record unchanged.
		if !same {
			return next, w, true, fmt.Errorf("pure: a refused event has changed the record")
		}
		// An operator's abort has to end the retries of an abort in progress.
		if a, ok := s.event.(us.Abort); ok && !s.stale && !a.Again && d.Upgrade != nil && d.Upgrade.Again {
			return d, w, false, fmt.Errorf("again: an abort for good is lost")
		}
		return d, w, false, nil
	}
	if s.stale {
		return next, w, true, fmt.Errorf("stale: an outdated or repeated event has changed the record")
	}
	after = w.clone()
	// The id is used up, also if the upgrade ends later.
	if begin, ok := s.event.(us.Begin); ok && next.Upgrade != nil && next.Upgrade.ID == begin.ID {
		after.ids++
	}
	if e, ok := s.event.(us.Rebuild); ok {
		after.rebuilt(e.Version)
	}
	// The machine fences the followed version, since its controllers read the old collection.
	if _, ok := s.event.(us.Replace); ok {
		if a, follows := us.Followed(d); follows && (d.Upgrade == nil || !d.Upgrade.Snapshot) {
			after.rebuilt(a.TargetVersion)
		}
	}
	after.settle(next)
	for _, i := range s.truly {
		after.drained[i] = true
	}
	if withdraw, ok := s.event.(us.Withdraw); ok {
		for _, i := range withdraw.Shards {
			after.drained[i] = false
		}
	}
	// Drains count for one attempt only.
	if u := next.Upgrade; u == nil || u.Step != us.StepDrain && u.Step != us.StepSealTarget && u.Step != us.StepSealSource {
		clear(after.drained)
	}
	return next, after, true, nil
}

// steps returns all possible next steps: actions of drivers, requests, late commands, and events
// that are stale, repeated or foreign.
func steps(m Machine, d us.Deployment, w *world) []step {
	var ss []step
	add := func(driver, stale bool, e us.Event) {
		ss = append(ss, step{event: e, driver: driver, stale: stale})
	}
	for at, c := range w.colls {
		for _, a := range c.commands {
			ss = append(ss, step{at: at, command: a, driver: true, fence: !a.unfence && !a.prevent})
		}
	}
	// The order of a map must not decide the result.
	slices.SortFunc(ss, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.at, b.at), a.command.compare(b.command))
	})
	for _, a := range m.Actions(d) {
		switch a := a.(type) {
		case us.Hold:
			add(true, false, us.Held{ID: a.ID})
		// A driver confirms only operations that have happened at the database.
		case us.Execute:
			if _, _, x, _ := commandOf(a); w.colls[place(a.Version, a.Place.Kind)].done(x) {
				add(true, false, us.Confirmed{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To, From: a.Pending.From})
			}
		// The rename may have happened before it was prevented.
		case us.Prevent:
			c := w.colls[place(a.Version, a.Place.Kind)]
			if c.name == a.Pending.To {
				add(true, false, us.Confirmed{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To, From: a.Pending.From})
			}
			if _, _, x, _ := commandOf(a); c.done(x) {
				add(true, false, us.Prevented{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To})
			}
		case us.Unfence:
			if _, _, x, _ := commandOf(a); w.colls[place(a.Version, a.Place.Kind)].done(x) {
				add(true, false, us.Unfenced{Version: a.Version, Kind: a.Place.Kind, From: a.From})
			}
		case us.AwaitReports:
			for _, i := range a.Shards {
				if w.restored || a.State == us.Switching && !fenced(d, w) {
					continue // no shard can have seen these fences, or its report waits for a beat
				}
				add(true, false, us.Report{ID: a.ID, State: a.State, Attempt: a.Attempt, Fences: a.Fences, Shards: []int{i}})
				ss[len(ss)-1].truly = []int{i}
			}
		case us.StartSwitch:
			add(true, false, a)
		case us.Drained:
			add(true, false, a)
		case us.Flip:
			if w.restored {
				continue // a driver checks the target before it flips
			}
			if w.life {
				a.Switch.Position = "here"
			}
			add(true, false, a)
		case us.FinishAbort:
			add(true, false, us.Aborted{ID: a.ID})
		}
	}
	asked(d, w, add)
	stale(d, add)
	if w.life {
		life(d, w, add)
	}
	if w.restores {
		ss = append(ss, restores(d, w)...)
	}
	if w.replaces {
		replaces(d, add)
	}
	if w.undecided {
		undecided(d, w, add)
	}
	return ss
}

// asked adds events that operators, shards and hasty drivers may send at any time.
func asked(d us.Deployment, w *world, add func(driver, stale bool, e us.Event)) {
	other := "v2"
	if d.CurrentVersion == "v2" {
		other = "v1"
	}
	if a, ok := us.Followed(d); ok && w.loaders {
		if seen, ok := us.ImagesOf(d, a.TargetVersion); ok && seen.Fences == 0 {
			add(false, false, us.FenceLoaders{Version: a.TargetVersion, Seen: seen})
		} else {
			// A loader's fence of an earlier view must change nothing.
			seen.Fences--
			add(false, true, us.FenceLoaders{Version: a.TargetVersion, Seen: seen})
		}
	}
	hash := "h"
	if w.hashes {
		hash = ""
		for _, h := range []string{"h", "k"} {
			add(false, false, us.AnnounceAvailable{Available: us.Available{TargetVersion: other, TransformHash: h, Precopied: true}})
		}
	}
	add(false, false, us.Begin{ID: fmt.Sprintf("u%d", w.ids+1), TargetVersion: other, TransformHash: hash, Shards: d.RingSize, Policy: us.Policy{Retries: w.retries}})
	add(false, false, us.Abort{Reason: "asked"})
	u := d.Upgrade
	if u == nil {
		return
	}
	if u.State == us.Switching {
		add(false, false, us.Abort{ID: u.ID, Reason: "deadline", Attempt: u.Attempt, Again: true})
	}
	// Drivers may send the next events too early. The machine must refuse them then.
	add(false, false, us.Withdraw{ID: u.ID, Shards: []int{0}})
	add(false, false, us.StartSwitch{ID: u.ID})
	add(false, false, us.Held{ID: u.ID})
	add(false, false, us.Drained{ID: u.ID})
	if !w.restored {
		add(false, false, us.Flip{ID: u.ID})
	}
	add(false, false, us.Aborted{ID: u.ID})
}

// stale adds events about the past or about another object, and repetitions.
func stale(d us.Deployment, add func(driver, stale bool, e us.Event)) {
	for _, ns := range d.Namespaces {
		add(false, true, us.AnnounceNamespace{Namespace: us.Namespace{Version: ns.Version, Location: ns.Location, Kinds: ns.Kinds}})
		for _, k := range ns.Kinds {
			for _, to := range []string{k.Physical, k.Kind, k.Kind + ".n0"} {
				// A hidden kind without a fence gets its own name once only, so this confirmation
				// may be true.
				if p := k.Pending; p == nil || p.To != to || p.Reason == us.PendingOpen && k.Fenced != "" {
					add(false, true, us.Confirmed{Version: ns.Version, Kind: k.Kind, To: to})
				}
			}
			add(false, true, us.Unfenced{Version: ns.Version, Kind: k.Kind, From: k.Kind + ".n0"})
			add(false, true, us.Unfenced{Version: ns.Version, Kind: k.Kind, From: k.Kind})
		}
	}
	for _, id := range []string{"", "foreign"} {
		add(false, true, us.StartSwitch{ID: id})
		add(false, true, us.Held{ID: id})
		add(false, true, us.Drained{ID: id})
		add(false, true, us.Flip{ID: id})
		add(false, true, us.Aborted{ID: id})
		add(false, true, us.Withdraw{ID: id, Shards: []int{0}})
	}
	add(false, true, us.Abort{ID: "foreign"})
	add(false, true, us.Begin{ID: "x", TargetVersion: d.CurrentVersion, TransformHash: "h"})
	add(false, true, us.Begin{ID: "x", TargetVersion: "v9", TransformHash: "h"})
	add(false, true, us.Begin{ID: "x", TargetVersion: "v2", TransformHash: "h", Shards: d.RingSize + 1})
	if d.LastUpgradeID != "" {
		add(false, true, us.Begin{ID: d.LastUpgradeID, TargetVersion: "v1", TransformHash: "h"})
		add(false, true, us.Begin{ID: d.LastUpgradeID, TargetVersion: "v2", TransformHash: "h"})
	}
	u := d.Upgrade
	if u == nil {
		return
	}
	if u.Attempt > 1 { // 0 means any attempt
		add(false, true, us.Abort{ID: u.ID, Reason: "deadline", Attempt: u.Attempt - 1, Again: true})
		add(false, true, us.Abort{ID: u.ID, Reason: "parked", Attempt: u.Attempt - 1})
		add(false, true, us.StartSwitch{ID: u.ID, Attempt: u.Attempt - 1})
	}
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			if p := k.Pending; p == nil || u.Step != us.StepAbort || ns.Version != d.CurrentVersion {
				to := k.Physical
				if p != nil {
					to = p.To
				}
				add(false, true, us.Prevented{Version: ns.Version, Kind: k.Kind, To: to})
			}
			add(false, true, us.Prevented{Version: ns.Version, Kind: k.Kind, To: k.Kind + ".n0"})
		}
	}
	add(false, true, us.Begin{ID: "x", TargetVersion: u.TargetVersion, TransformHash: "h"})
	if u.TransformHash != "other" {
		add(false, true, us.AnnounceAvailable{Available: us.Available{TargetVersion: u.TargetVersion, TransformHash: "other"}})
	}
	// Reports for another attempt, upgrade, phase or fence must not count.
	fences := us.FenceNames(d)
	for _, state := range []us.Phase{us.InitialSyncing, us.Switching} {
		add(false, true, us.Report{ID: u.ID, State: state, Attempt: u.Attempt - 1, Fences: fences, Shards: []int{0, 1}})
		add(false, true, us.Report{ID: "foreign", State: state, Attempt: u.Attempt, Fences: fences, Shards: []int{0, 1}})
		if state != u.State {
			add(false, true, us.Report{ID: u.ID, State: state, Attempt: u.Attempt, Fences: fences, Shards: []int{0, 1}})
		}
	}
	add(false, true, us.Report{ID: u.ID, State: us.Switching, Attempt: u.Attempt, Fences: "other", Shards: []int{0, 1}})
	if u.Step != us.StepDrain {
		add(false, true, us.Report{ID: u.ID, State: us.Switching, Attempt: u.Attempt, Fences: fences, Shards: []int{0, 1}})
	}
}
