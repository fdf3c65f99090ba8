package identity

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Keeper writes the marks of a deployment's namespaces. Only the leading process uses it.
type Keeper struct {
	Deployments Deployments
	Databases   map[string]record.Marker // by version
	Ahead       *Ahead                   // of ReadAhead, for BeforeFlip; nil: it reads itself
}

// BeforeFlip marks in both databases that the upgrade's target may be the current version from the
// next epoch on. The caller must not try a flip before it returns nil.
func (k Keeper) BeforeFlip(ctx context.Context, d upgradestate.Deployment) error {
	u := d.Upgrade
	text, err := state(d)
	if u == nil || err != nil {
		return err
	}
	next := Next{ID: u.ID, Attempt: u.Attempt, Epoch: d.Epoch + 1, To: u.TargetVersion}
	// Both marks are needed before the flip, in any order.
	g, ctx := errgroup.WithContext(ctx)
	for _, version := range []string{d.CurrentVersion, u.TargetVersion} {
		g.Go(func() error {
			return k.put(ctx, d, version, k.Ahead.take(version), func(m *Mark) (bool, error) {
				// A later attempt was aborted, so this record is outdated. The source may accept
				// writes again.
				over, err := k.aborted(ctx, *u, m.Aborted)
				if err != nil {
					return false, err
				}
				if over {
					return false, fmt.Errorf("mark of %s: this attempt was aborted: %s", version, recoverFirst)
				}
				if m.Next != nil && *m.Next == next {
					return false, nil
				}
				m.Next, m.State = &next, text
				return true, nil
			})
		})
	}
	return g.Wait()
}

// aborted reports whether an attempt is over, from the latest abandoned attempt in a mark. The IDs of
// upgrades have no order, so for another upgrade's attempt it reads the record. The caller has read
// the mark before, and its write fails if an abort changes the mark meanwhile.
func (k Keeper) aborted(ctx context.Context, u upgradestate.Upgrade, last *Attempt) (bool, error) {
	if last == nil {
		return false, nil
	}
	if last.ID == u.ID {
		return last.Attempt > u.Attempt, nil
	}
	now, err := k.Deployments.Get(ctx)
	if err != nil {
		return false, fmt.Errorf("read the deployment before the switch: %w", err)
	}
	return now.Upgrade == nil || now.Upgrade.ID != u.ID || now.Upgrade.Attempt > u.Attempt, nil
}

// BeforeAbort marks in the source's database that the attempt is over. The caller gives nothing of
// the source back to clients before it returns nil. The target's mark keeps its "may be": the
// source's mark decides.
func (k Keeper) BeforeAbort(ctx context.Context, d upgradestate.Deployment) error {
	u := d.Upgrade
	text, err := state(d)
	if u == nil || err != nil {
		return err
	}
	aborted := Attempt{ID: u.ID, Attempt: u.Attempt}
	return k.put(ctx, d, d.CurrentVersion, nil, func(m *Mark) (bool, error) {
		if m.Next == nil && m.Aborted != nil && *m.Aborted == aborted {
			return false, nil
		}
		// The mark shows a switch that this record does not know. Opening the source could split
		// writes.
		if m.Next != nil && m.Next.Epoch > d.Epoch && !m.Next.underWay(d) {
			return false, fmt.Errorf("mark of %s: a switch to %s may have been made: %s", d.CurrentVersion, m.Next.To, recoverFirst)
		}
		if m.Next != nil && m.Next.Epoch <= d.Epoch {
			// An earlier switch is over. Keep had no chance to record its end, because the next
			// switch began first.
			m.Epoch, m.Current = d.Epoch, true
		}
		m.Next, m.Aborted, m.State = nil, &aborted, text
		return true, nil
	})
}

// Keep updates the marks to a record outside SWITCHING. Call it with each record seen. It leaves
// marks alone that are ahead of the record; Check reports those.
func (k Keeper) Keep(ctx context.Context, d upgradestate.Deployment) error {
	if d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching {
		return nil // BeforeFlip and BeforeAbort write the marks now
	}
	text, err := state(d)
	if err != nil {
		return err
	}
	var g errgroup.Group // write the databases in parallel
	for _, ns := range d.Namespaces {
		g.Go(func() error {
			return k.put(ctx, d, ns.Version, nil, func(m *Mark) (bool, error) {
				current := ns.Version == d.CurrentVersion
				next := m.Next
				// The announced switch is over: its epoch has begun.
				if next != nil && next.Epoch <= d.Epoch {
					next = nil
				}
				// Unchanged marks are not written again, and a newer mark must survive an older
				// record.
				if m.Epoch == d.Epoch && m.Current == current && m.Next == next && m.State == text || behind(d, *m, ns) {
					return false, nil
				}
				m.Epoch, m.Current, m.Next, m.State = d.Epoch, current, next, text
				return true, nil
			})
		})
	}
	return g.Wait()
}

// behind reports whether the record is older than the mark. An unreadable mark counts as newer.
func behind(d upgradestate.Deployment, m Mark, ns upgradestate.Namespace) bool {
	seen, err := m.Deployment()
	if err != nil {
		return true
	}
	before, _ := seen.Namespace(ns.Version)
	for _, k := range ns.Kinds {
		if old, ok := before.Kind(k.Kind); ok && old.NextSeq > k.NextSeq {
			return true
		}
	}
	return m.Epoch > d.Epoch
}

// put changes the mark of a version. It skips a version that is not configured here or was never
// entered, because those have no mark to keep. ahead is the mark as it was read before, or nil.
func (k Keeper) put(ctx context.Context, d upgradestate.Deployment, version string, ahead *Mark, change func(*Mark) (bool, error)) error {
	db := k.marked(d, version)
	if db == nil {
		return nil
	}
	err := putOn(ctx, db, record.Owner{Deployment: d.Name, Version: version}, ahead, func(m *Mark) (bool, error) {
		switch {
		// A mark that vanished means a restored database. Writing a new one would hide that.
		case m.rev == 0:
			return false, fmt.Errorf("its mark is gone: restore the database, or run 'dbcontroller recover'")
		case m.Epoch > d.Epoch:
			return false, fmt.Errorf("it was seen in epoch %d, but the deployment is in %d: %s", m.Epoch, d.Epoch, recoverFirst)
		}
		return change(m)
	})
	if err != nil {
		return fmt.Errorf("mark the database of %s: %w", version, err)
	}
	return nil
}

// marked returns the database of a version that has a mark to keep, or nil.
func (k Keeper) marked(d upgradestate.Deployment, version string) record.Marker {
	db := k.Databases[version]
	ns, _ := d.Namespace(version)
	if db == nil || ns.Identity == (upgradestate.Identity{}) || upgradestate.Retired(d, version) {
		return nil
	}
	return db
}
