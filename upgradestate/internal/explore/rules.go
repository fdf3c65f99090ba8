package explore

import (
	"fmt"
	"slices"

	us "dbcontroller.dev/upgradestate"
)

// fenced reports whether the database refuses all clients' writes to the current version.
func fenced(d us.Deployment, w *world) bool {
	ns, _ := d.Namespace(d.CurrentVersion)
	return !slices.ContainsFunc(ns.Kinds, func(k us.Kind) bool { return w.colls[place(ns.Version, k.Kind)].writable(k) })
}

// checkState checks the rules that hold in every state.
func checkState(m Machine, d us.Deployment, w *world) error {
	if err := m.Validate(d); err != nil {
		return fmt.Errorf("valid: %w", err)
	}
	if w.restored {
		return nil // no process can know of the restore or prevent it
	}
	if err := checkWritable(m, d, w); err != nil {
		return err
	}
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			c := w.colls[place(ns.Version, k.Kind)]
			err := checkPlace(m, d, ns.Version, k, c)
			if err == nil {
				err = checkImages(m, d, ns.Version, k, c)
			}
			if err == nil {
				err = checkLoaders(d, ns.Version, c)
			}
			if err == nil {
				err = checkVoid(m, d, ns.Version, k, c)
			}
			if err != nil {
				return fmt.Errorf("%w (%s of %s is at %s, mark %q; the record has %+v)", err, k.Kind, ns.Version, c.name, c.mark, k)
			}
		}
	}
	// At rest nothing may be left to do.
	if len(m.Actions(d)) > 0 {
		return nil
	}
	if slices.ContainsFunc(d.Namespaces, func(ns us.Namespace) bool {
		return slices.ContainsFunc(ns.Kinds, func(k us.Kind) bool { return k.Pending != nil })
	}) {
		return fmt.Errorf("progress: an operation is pending and there is nothing to do")
	}
	return nil
}

// checkWritable checks that the database allows writes to at most one namespace, and to none
// between the fences and the flip. Writers get tokens of the current version only.
func checkWritable(m Machine, d us.Deployment, w *world) error {
	var writable []string
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			// One writable kind is enough for two versions to diverge.
			if w.colls[place(ns.Version, k.Kind)].writable(k) {
				writable = append(writable, ns.Version)
				break
			}
		}
	}
	version, places := m.WritePlaces(d)
	u := d.Upgrade
	switch {
	case len(writable) > 1:
		return fmt.Errorf("one writer: %v can both be written", writable)
	// Writes into the target would be overwritten, or lost by an abort.
	case len(writable) == 1 && writable[0] != d.CurrentVersion:
		return fmt.Errorf("one writer: %s can be written, current is %s", writable[0], d.CurrentVersion)
	case version != d.CurrentVersion:
		return fmt.Errorf("one writer: write places of %s, current is %s", version, d.CurrentVersion)
	case u != nil && u.State == us.Switching && len(places) > 0:
		return fmt.Errorf("hold: write places in step %s", u.Step)
	case len(writable) > 0 && u != nil && (u.Step == us.StepDrain || u.Step == us.StepSealTarget || u.Step == us.StepSealSource):
		return fmt.Errorf("fence: %v can be written in step %s", writable, u.Step)
	// No driver would ever open the namespace again.
	case len(m.Actions(d)) == 0 && len(places) == 0:
		return fmt.Errorf("open: at rest and no write places")
	}
	return nil
}

// checkPlace checks that the record knows the place of a collection, and that reads of the current
// version find it until its last rename. No stale token may open it.
func checkPlace(m Machine, d us.Deployment, version string, k us.Kind, c *coll) error {
	names := func(ps []us.Place) []string {
		var ns []string
		for _, p := range ps {
			ns = append(ns, p.Name)
		}
		return ns
	}
	if !slices.Contains(names(m.EnginePlaces(d, version)[k.Kind]), c.name) {
		return fmt.Errorf("place: the record does not know where a kind is")
	}
	if k.Pending == nil && c.name != k.Physical {
		return fmt.Errorf("place: a kind has moved without announcement")
	}
	// A driver would otherwise lift a fence that is not in force.
	if byMark(k) && !k.Hidden && k.Pending == nil && k.Fenced != c.mark {
		return fmt.Errorf("place: the mark in force is not the one confirmed")
	}
	// After the last rename reads wait for the flip.
	last := k.Sealed || k.Pending != nil && k.Pending.Reason == us.PendingLast
	if version == d.CurrentVersion && !last && !slices.Contains(names(m.ReadPlaces(d, version)[k.Kind]), c.name) {
		return fmt.Errorf("read: a reader of the current version cannot find a kind")
	}
	_, writes := m.WritePlaces(d)
	if version == d.CurrentVersion && len(writes) > 0 && !c.writable(k) {
		return fmt.Errorf("open: writers are sent where the database refuses them")
	}
	// The rest is about new names, and this class keeps its name.
	if byMark(k) {
		return nil
	}
	t := c.tokens[c.name]
	if version != d.CurrentVersion && (t.read || t.write) && !k.Fixed {
		return fmt.Errorf("stale read: a client's token still opens a namespace that is not current")
	}
	if version == d.CurrentVersion && len(writes) > 0 && t.apply {
		return fmt.Errorf("stale apply: a controller's token still opens the namespace that clients write")
	}
	return nil
}

// checkImages checks that where one transformation may write, no controller with another one can.
// Each generation of the record has its own plan and its own reports.
func checkImages(m Machine, d us.Deployment, version string, k us.Kind, c *coll) error {
	a, ok := us.Followed(d)
	if !ok || a.TargetVersion != version || byMark(k) && !k.Hidden || !m.ApplyAllowed(d) {
		return nil
	}
	if by := c.tokens[c.name].by; by != "" && by != a.TransformHash {
		return fmt.Errorf("images: controllers that transform by %q can write where %q does", by, a.TransformHash)
	}
	return nil
}

// checkLoaders checks that where the comparison may begin, no controller can load.
func checkLoaders(d us.Deployment, version string, c *coll) error {
	if a, ok := us.Followed(d); ok && a.TargetVersion == version && us.LoadersFenced(d, version, 0) && c.tokens[c.name].load {
		return fmt.Errorf("loaders: who loads without guards can write where everything is compared")
	}
	return nil
}

// checkStep checks the rules of a step.
func checkStep(m Machine, s step, d, next us.Deployment, before, w *world) error {
	if next.CurrentVersion != d.CurrentVersion || next.Epoch != d.Epoch {
		if err := checkFlip(s, d, next, before, w); err != nil {
			return err
		}
	}
	if err := checkLife(m, s, d, next); err != nil {
		return err
	}
	if err := checkRebuild(s, d, next); err != nil {
		return err
	}
	if err := checkReplace(s, d, next); err != nil {
		return err
	}
	if err := checkFound(m, s, d, next); err != nil {
		return err
	}
	// Names and marks are used once.
	for _, ns := range next.Namespaces {
		old, _ := d.Namespace(ns.Version)
		for _, k := range ns.Kinds {
			was, ok := old.Kind(k.Kind)
			if !ok || k.NextSeq < was.NextSeq {
				return fmt.Errorf("names: nextSeq of %s went back", k.Kind)
			}
			if k.Pending == nil || was.Pending != nil && *was.Pending == *k.Pending {
				continue
			}
			if seq, ok := seqOf(k.Kind, k.Pending.To); ok && k.Pending.Reason != us.PendingOpen && uint64(seq) < was.NextSeq {
				return fmt.Errorf("names: %s is announced again", k.Pending.To)
			}
		}
	}
	// A new phase without a new attempt would let old reports count.
	if u, n := d.Upgrade, next.Upgrade; u != nil && n != nil && u.ID == n.ID {
		if n.Attempt < u.Attempt || (n.State != u.State || n.Step == us.StepAbort && u.Step != us.StepAbort) && n.Attempt == u.Attempt {
			return fmt.Errorf("attempt: %s/%s to %s/%s keeps attempt %d", u.State, u.Step, n.State, n.Step, n.Attempt)
		}
	}
	if err := checkAgain(s, d, next); err != nil {
		return err
	}
	return checkEnds(m, d, next, w)
}

// checkAgain checks an upgrade that continues after a failed attempt. It must reset its ready
// shards, continue only as often as its policy allows, and not continue after an operator's abort.
func checkAgain(s step, d, next us.Deployment) error {
	u, n := d.Upgrade, next.Upgrade
	if a, ok := s.event.(us.Abort); ok && !a.Again && n != nil && n.Again {
		return fmt.Errorf("again: what was aborted for good is tried again")
	}
	if u == nil || n == nil || u.ID != n.ID || u.State != us.Switching || n.State != us.InitialSyncing {
		return nil
	}
	switch {
	case u.Step != us.StepAbort || !u.Again:
		return fmt.Errorf("again: %s/%s goes back to %s", u.State, u.Step, n.State)
	case len(n.ReadyShards) > 0:
		return fmt.Errorf("again: shards %v are ready before the attempt", n.ReadyShards)
	case n.Failures != u.Failures+1:
		return fmt.Errorf("again: %d attempts were given up, then %d", u.Failures, n.Failures)
	case u.Policy.Retries != 0 && u.Failures >= u.Policy.Retries:
		return fmt.Errorf("again: attempt %d, and the policy allows %d more", u.Failures+2, u.Policy.Retries)
	}
	return nil
}

// checkFlip checks that a flip follows the drain of every shard to the fences in force and
// publishes exactly the confirmed names.
func checkFlip(s step, d, next us.Deployment, before, w *world) error {
	// A restore may change the epoch without a flip.
	if _, ok := s.event.(us.FoundRestored); ok && next.CurrentVersion == d.CurrentVersion {
		if _, followed := us.Followed(d); followed || next.Epoch != d.Epoch+2 {
			return fmt.Errorf("follow: epoch %d to %d by %s", d.Epoch, next.Epoch, s.label())
		}
		return nil
	}
	if _, ok := s.event.(us.FollowRestored); ok && next.CurrentVersion == d.CurrentVersion {
		if _, found := us.WasRestored(d); !found || next.Epoch != d.Epoch+2 {
			return fmt.Errorf("follow: epoch %d to %d by %s", d.Epoch, next.Epoch, s.label())
		}
		return nil
	}
	if _, ok := s.event.(us.Flip); !ok {
		return fmt.Errorf("flip: epoch or version changed by %s", s.label())
	}
	switch {
	case next.CurrentVersion == d.CurrentVersion || next.Epoch != d.Epoch+1:
		return fmt.Errorf("flip: epoch %d to %d, version %s to %s", d.Epoch, next.Epoch, d.CurrentVersion, next.CurrentVersion)
	// The world knows the true drains, whatever the record has.
	case slices.Contains(before.drained, false):
		return fmt.Errorf("flip: shards drained are %v", before.drained)
	case next.Upgrade != nil || next.LastSwitch == nil || next.LastSwitch.ID != d.Upgrade.ID:
		return fmt.Errorf("flip: the upgrade is not closed")
	}
	for _, ns := range next.Namespaces {
		for _, k := range ns.Kinds {
			if c := w.colls[place(ns.Version, k.Kind)]; c.name != k.Physical {
				return fmt.Errorf("flip: %s of %s is published at %s and is at %s", k.Kind, ns.Version, k.Physical, c.name)
			}
		}
	}
	return nil
}

// checkEnds checks that no late command can move the source after an abort, or any kind once a
// switch starts.
func checkEnds(m Machine, d, next us.Deployment, w *world) error {
	switchStarts := next.Upgrade != nil && next.Upgrade.State == us.Switching && d.Upgrade != nil && d.Upgrade.State == us.InitialSyncing
	abortEnds := d.Upgrade != nil && d.Upgrade.Step == us.StepAbort && next.Upgrade == nil
	if abortEnds && len(next.Namespaces) > 0 {
		if _, places := m.WritePlaces(next); len(places) == 0 {
			return fmt.Errorf("abort: writers find nothing after it")
		}
	}
	for _, ns := range next.Namespaces {
		for _, k := range ns.Kinds {
			c := w.colls[place(ns.Version, k.Kind)]
			if !switchStarts && (!abortEnds || ns.Version != next.CurrentVersion) {
				continue
			}
			for _, a := range c.commands {
				// Tries the late command on a copy of the collection.
				probe := coll{name: c.name, mark: c.mark}
				probe.do(a)
				if probe.name != c.name || probe.mark != c.mark {
					return fmt.Errorf("late operation: %+v can still move %s of %s", a, k.Kind, ns.Version)
				}
			}
		}
	}
	return nil
}
