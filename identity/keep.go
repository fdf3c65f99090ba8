package identity

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Keeper writes the marks of a deployment's namespaces, for the process that leads.
type Keeper struct {
	Deployments Deployments
	Databases   map[string]record.Marker // by version
}

// BeforeFlip notes in both databases that the upgrade's target may be the current version
// from the next epoch on. A flip must not be tried before it has returned nil.
func (k Keeper) BeforeFlip(ctx context.Context, d upgradestate.Deployment) error {
	u := d.Upgrade
	text, err := state(d)
	if u == nil || err != nil {
		return err
	}
	next := Next{ID: u.ID, Attempt: u.Attempt, Epoch: d.Epoch + 1, To: u.TargetVersion}
	g, ctx := errgroup.WithContext(ctx)
	for _, version := range []string{d.CurrentVersion, u.TargetVersion} {
		g.Go(func() error {
			return k.put(ctx, d, version, func(m *Mark) (bool, error) {
				if m.Aborted != nil && m.Aborted.ID == u.ID && m.Aborted.Attempt > u.Attempt {
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

// BeforeAbort notes in the source's database, alone, that the attempt which is being
// aborted is over. Nothing of the source is given back to its clients before it has
// returned nil. The target's mark may still hold what the source's does not: the source's
// counts.
func (k Keeper) BeforeAbort(ctx context.Context, d upgradestate.Deployment) error {
	u := d.Upgrade
	text, err := state(d)
	if u == nil || err != nil {
		return err
	}
	aborted := Attempt{ID: u.ID, Attempt: u.Attempt}
	return k.put(ctx, d, d.CurrentVersion, func(m *Mark) (bool, error) {
		if m.Next == nil && m.Aborted != nil && *m.Aborted == aborted {
			return false, nil
		}
		if m.Next != nil && m.Next.Epoch > d.Epoch && !m.Next.underWay(d) {
			return false, fmt.Errorf("mark of %s: a switch to %s may have been made: %s", d.CurrentVersion, m.Next.To, recoverFirst)
		}
		if m.Next != nil && m.Next.Epoch <= d.Epoch {
			// A switch that is over: Keep would have noted it, and not while another one runs, which
			// may have begun before a controller looked.
			m.Epoch, m.Current = d.Epoch, true
		}
		m.Next, m.Aborted, m.State = nil, &aborted, text
		return true, nil
	})
}

// Keep brings the marks up to date with a record at rest. It is to be called with each that
// is seen. Marks that are ahead of the record are left alone: that is Check's business.
func (k Keeper) Keep(ctx context.Context, d upgradestate.Deployment) error {
	if d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching {
		return nil // BeforeFlip and BeforeAbort write what has to be written
	}
	text, err := state(d)
	if err != nil {
		return err
	}
	var g errgroup.Group // one database does not wait for another
	for _, ns := range d.Namespaces {
		g.Go(func() error {
			return k.put(ctx, d, ns.Version, func(m *Mark) (bool, error) {
				current := ns.Version == d.CurrentVersion
				next := m.Next
				if next != nil && next.Epoch <= d.Epoch {
					next = nil
				}
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

// behind reports whether a record is older than a mark.
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

// put changes the mark of a version that is marked; one that is not configured here, or was
// never entered, has none to be kept.
func (k Keeper) put(ctx context.Context, d upgradestate.Deployment, version string, change func(*Mark) (bool, error)) error {
	db, ns := k.Databases[version], upgradestate.Namespace{}
	if ns, _ = d.Namespace(version); db == nil || ns.Identity == (upgradestate.Identity{}) || upgradestate.Retired(d, version) {
		return nil
	}
	err := put(ctx, db, record.Owner{Deployment: d.Name, Version: version}, func(m *Mark) (bool, error) {
		switch {
		case m.rev == 0:
			return false, fmt.Errorf("its mark is gone: restore the database, or run 'dbcontroller recover'")
		case m.Epoch > d.Epoch:
			return false, fmt.Errorf("it was seen in epoch %d, and the deployment is in %d: %s", m.Epoch, d.Epoch, recoverFirst)
		}
		return change(m)
	})
	if err != nil {
		return fmt.Errorf("mark the database of %s: %w", version, err)
	}
	return nil
}
