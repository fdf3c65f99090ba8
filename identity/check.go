package identity

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Deployments reads the record, linearizably where it can.
type Deployments interface {
	Get(ctx context.Context) (upgradestate.Deployment, error)
}

// Database is what is asked of a version's database.
type Database interface {
	record.Marker
	Locate(ctx context.Context, id string) (name string, err error)
}

// MismatchError means that a database and the Deployment are not each other's. Nothing was
// changed. It is a record.ErrBroken: trying again does not cure it, a person does.
type MismatchError struct {
	Version string // empty: the caller that passes it on adds which
	Found   string // what, and what is to be done
}

func (e *MismatchError) Error() string {
	if e.Version == "" {
		return e.Found
	}
	return "database of " + e.Version + ": " + e.Found
}

// Is makes it the error of a stream that must not be followed.
func (e *MismatchError) Is(target error) bool { return target == record.ErrBroken }

// recoverFirst is what to do when the Deployment is older than a database.
const recoverFirst = "etcd was lost or restored, or another one is configured: correct etcd, or run 'dbcontroller recover'"

// facts are what a database holds.
type facts struct {
	identity upgradestate.Identity
	mark     *Mark // of this namespace
	claims   map[string]record.Claim
	others   []record.Owner // with a mark here
}

func read(ctx context.Context, db record.Marker, owner record.Owner) (facts, error) {
	f := facts{claims: map[string]record.Claim{}}
	id, err := db.Identity(ctx)
	if err != nil {
		return f, err
	}
	f.identity = upgradestate.Identity{Cluster: id.Cluster, Database: id.Database}
	if id.Database == "" {
		return f, nil // nothing was ever noted here
	}
	if f.mark, f.others, err = readMark(ctx, db, owner); err != nil {
		return f, err
	}
	claims, err := db.Claims(ctx)
	for _, c := range claims {
		f.claims[c.Kind] = c
	}
	return f, err
}

// readMark returns an owner's mark, nil if there is none, and who else has one.
func readMark(ctx context.Context, db record.Marker, owner record.Owner) (mark *Mark, others []record.Owner, err error) {
	marks, err := db.Marks(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range marks {
		if m.Owner != owner {
			others = append(others, m.Owner)
			continue
		}
		own, err := decodeMark(m)
		if err != nil {
			return nil, nil, err
		}
		mark = &own
	}
	return mark, others, nil
}

// lived reports whether the namespace has a collection here.
func (f facts) lived(owner record.Owner) bool {
	for _, c := range f.claims {
		if c.Owner == owner {
			return true
		}
	}
	return false
}

// Check compares each database with what the Deployment holds of its version, and returns a
// *MismatchError for one that is not the one meant, or where one of the two is older than the
// other. Versions whose database the Deployment does not know yet are passed over. The record
// is read again before it is blamed: it moves on, and so do names.
func Check(ctx context.Context, ds Deployments, databases map[string]record.Marker) error {
	return check(ctx, ds, databases, true)
}

// Same is Check of the databases alone, for those that only read a copy of the record, which
// may be older: that they are the ones meant, with the collections that the record knows.
func Same(ctx context.Context, ds Deployments, databases map[string]record.Marker) error {
	return check(ctx, ds, databases, false)
}

func check(ctx context.Context, ds Deployments, databases map[string]record.Marker, whole bool) error {
	d, err := ds.Get(ctx)
	if err != nil {
		return err
	}
	for {
		found, err := compareAll(ctx, d, databases, whole)
		if err != nil || found == nil {
			return err
		}
		again, err := ds.Get(ctx)
		if err != nil {
			return err
		}
		if again.Revision == d.Revision {
			return found
		}
		d = again
	}
}

func compareAll(ctx context.Context, d upgradestate.Deployment, databases map[string]record.Marker, whole bool) (*MismatchError, error) {
	for version, db := range databases {
		ns, ok := d.Namespace(version)
		if !ok || ns.Identity == (upgradestate.Identity{}) || upgradestate.Retired(d, version) {
			continue
		}
		f, err := read(ctx, db, record.Owner{Deployment: d.Name, Version: version})
		if err != nil {
			return nil, fmt.Errorf("look whose the database of %s is: %w", version, err)
		}
		text := f.isMeant(d, ns)
		if text == "" && whole {
			text = f.fits(d, ns)
		}
		if text != "" {
			return &MismatchError{Version: version, Found: text}, nil
		}
	}
	return nil, nil
}

// isMeant returns in what the database is not that of the namespace; "" is nothing.
func (f facts) isMeant(d upgradestate.Deployment, ns upgradestate.Namespace) string {
	const correct = "correct its endpoint, or its database or prefix, in dbs of the configuration"
	switch {
	case f.identity.Database == "":
		return fmt.Sprintf("it is empty or another one: nothing of %s was ever in it, and the deployment means database %s in cluster %s (%s): %s",
			d.Name, ns.Identity.Database, known(ns.Identity.Cluster), ns.Hosts, correct)
	case f.identity.Differs(ns.Identity):
		return fmt.Sprintf("it is database %s in cluster %s, and the deployment means %s in cluster %s (%s): %s",
			f.identity.Database, known(f.identity.Cluster), ns.Identity.Database, known(ns.Identity.Cluster), ns.Hosts, correct)
	}
	for _, k := range ns.Kinds {
		c, ok := f.claims[k.Kind]
		switch {
		case !ok:
			return fmt.Sprintf("collection %s of kind %s, which the deployment knows, is not noted in it: it was dropped, or the database restored: put it back, or run 'dbcontroller recover'", k.ID, k.Kind)
		case c.Owner.Deployment != d.Name || c.Owner.Version != ns.Version:
			return fmt.Sprintf("kind %s is that of %s: %s", k.Kind, c.Owner, correct)
		case f.isReplaced(d, ns, k):
			// The application's own doing: controllers follow it.
		case k.ID != "" && c.Name == "" && c.Instead != "":
			return fmt.Sprintf("collection %s of kind %s is gone, and %s has its name %s: a shard was moved or resharded (movePrimary, moveCollection, reshardCollection, unshardCollection), "+
				"which makes a collection anew, or somebody dropped it; every process that knows the old one is refused: run 'dbcontroller recover', which takes the new one for it",
				k.ID, k.Kind, c.Instead, c.InsteadName)
		case k.ID != "" && c.ID != k.ID:
			return fmt.Sprintf("kind %s is collection %s, and the deployment knows it as %s: %s", k.Kind, c.ID, k.ID, recoverFirst)
		case k.ID != "" && c.Name == "":
			return fmt.Sprintf("collection %s of kind %s is gone: it was dropped, moved to another shard, or the database was restored: put it back, or run 'dbcontroller recover'", k.ID, k.Kind)
		}
	}
	return ""
}

func known(cluster string) string {
	if cluster == "" {
		return "(unknown)"
	}
	return cluster
}

// fits returns in what the database and the Deployment are of different times; "" is
// nothing.
func (f facts) fits(d upgradestate.Deployment, ns upgradestate.Namespace) string {
	m := f.mark
	if m == nil {
		return fmt.Sprintf("it no longer has a mark of %s: it was restored, or somebody removed it: restore a newer state, or run 'dbcontroller recover'", ns.Version)
	}
	current := ns.Version == d.CurrentVersion
	ahead := func(format string, args ...any) string {
		return fmt.Sprintf("the deployment is older than it (%s): %s", fmt.Sprintf(format, args...), recoverFirst)
	}
	switch {
	case m.Epoch > d.Epoch:
		return ahead("it was last seen in epoch %d%s, and the deployment is at %s in epoch %d", m.Epoch, currently(*m, ns.Version), d.CurrentVersion, d.Epoch)
	case m.Epoch == d.Epoch && m.Current != current:
		return ahead("in epoch %d%s, and by the deployment %s is", m.Epoch, currently(*m, ns.Version), d.CurrentVersion)
	case current && m.Next != nil && m.Next.Epoch > d.Epoch && !m.Next.underWay(d):
		return ahead("a switch to %s, %s, may have been made from it", m.Next.To, m.Next.ID)
	case current && m.Aborted != nil && d.Upgrade != nil && d.Upgrade.ID == m.Aborted.ID && d.Upgrade.Attempt < m.Aborted.Attempt:
		return ahead("upgrade %s, which the deployment has in step %q, was aborted", d.Upgrade.ID, d.Upgrade.Step)
	case m.Epoch < d.Epoch && takesPart(d, ns.Version) && !(m.Next != nil && m.Next.Epoch == d.Epoch && m.Next.To == d.CurrentVersion):
		return fmt.Sprintf("it is older than the deployment (it was last seen in epoch %d, and the deployment is at %s in epoch %d): it was restored from a backup: restore a newer state, or run 'dbcontroller recover'",
			m.Epoch, d.CurrentVersion, d.Epoch)
	}
	seen, err := m.Deployment()
	if err != nil {
		return err.Error()
	}
	before, _ := seen.Namespace(ns.Version)
	for _, k := range ns.Kinds {
		if old, ok := before.Kind(k.Kind); ok && old.NextSeq > k.NextSeq {
			return ahead("kind %s has had the name or mark number %d, and the deployment would use %d again", k.Kind, old.NextSeq-1, k.NextSeq)
		}
		c := f.claims[k.Kind]
		if k.ID == "" || slices.Contains(names(k), c.Name) || f.isReplaced(d, ns, k) {
			continue
		}
		if c.Name != k.Kind && !hiddenName(k.Kind, c.Name) {
			return fmt.Sprintf("collection %s of kind %s was renamed to %s by somebody else: rename it back to %s", k.ID, k.Kind, c.Name, k.Physical)
		}
		return ahead("kind %s bears the name %s, and the deployment has it at %s", k.Kind, c.Name, k.Physical)
	}
	return ""
}

func (f facts) isReplaced(d upgradestate.Deployment, ns upgradestate.Namespace, k upgradestate.Kind) bool {
	_, replaced := f.replaced(d, ns, k)
	return replaced
}

// hiddenName reports whether a name is one that only we give a kind.
func hiddenName(kind, name string) bool {
	k, _, hidden := record.KindOfPhysical(name)
	return hidden && k == kind
}

// names are those that a kind may bear now.
func names(k upgradestate.Kind) []string {
	if k.Pending == nil {
		return []string{k.Physical}
	}
	return []string{k.Physical, k.Pending.From, k.Pending.To}
}

func currently(m Mark, version string) string {
	if m.Current {
		return " with " + version + " as the current version"
	}
	return " with another current version"
}

// underWay reports whether the record has this very switch before its end.
func (n Next) underWay(d upgradestate.Deployment) bool {
	u := d.Upgrade
	if u == nil || u.ID != n.ID {
		return false
	}
	switch u.Step {
	case upgradestate.StepSealSource:
		return u.Attempt == n.Attempt
	case upgradestate.StepAbort:
		return u.Attempt == n.Attempt+1
	case upgradestate.StepNone, upgradestate.StepHold, upgradestate.StepFence, upgradestate.StepDrain, upgradestate.StepSealTarget:
		return false
	default:
		return false
	}
}

// takesPart reports whether the latest switch concerned a version.
func takesPart(d upgradestate.Deployment, version string) bool {
	return d.LastSwitch != nil && (d.LastSwitch.From == version || d.LastSwitch.To == version)
}
