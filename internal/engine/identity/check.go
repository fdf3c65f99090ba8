package identity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Deployments reads the Deployment's record, linearizably where it can.
type Deployments interface {
	Get(ctx context.Context) (upgradestate.Deployment, error)
}

// Database is the access to a version's database that Adopt needs.
type Database interface {
	record.Marker
	// Locate returns the present name of a collection, or record.ErrNotFound.
	Locate(ctx context.Context, id string) (name string, err error)
}

// MismatchError means that a database and the Deployment do not belong together. Nothing was
// changed. It is a record.ErrBroken: retries do not help, an operator has to act.
type MismatchError struct {
	Version string // empty: the caller adds it
	Found   string // the finding, and advice
	// Lost means that the database, or a collection that the Deployment knows in it, is missing.
	// False if one side is outdated, or if the database has another owner.
	Lost bool
}

// IsLost reports whether err is a MismatchError about a missing database or collection. The
// database was dropped, or another server answers in its place.
func IsLost(err error) bool {
	var mismatch *MismatchError
	return errors.As(err, &mismatch) && mismatch.Lost
}

func (e *MismatchError) Error() string {
	if e.Version == "" {
		return e.Found
	}
	return "database of " + e.Version + ": " + e.Found
}

// Is makes MismatchError a record.ErrBroken, so that no process follows the stream.
func (e *MismatchError) Is(target error) bool { return target == record.ErrBroken }

// recoverFirst is the advice for a Deployment that is older than a database.
const recoverFirst = "etcd was lost or restored, or the configuration names another etcd: correct etcd, or run 'dbcontroller recover'"

// facts are the identity, mark and claims of one database.
type facts struct {
	identity upgradestate.Identity
	mark     *Mark // of this namespace; nil: none
	claims   map[string]record.Claim
	others   []record.Owner // other owners with a mark here
}

// read reads the facts of a database about an owner's namespace. It asks for all of them at once, because
// the database may be far away and a switch may wait.
func read(ctx context.Context, db record.Marker, owner record.Owner) (facts, error) {
	f := facts{claims: map[string]record.Claim{}}
	var id record.Identity
	var mark *Mark
	var others []record.Owner
	var claims []record.Claim
	var unidentified, unmarked, unclaimed error
	var g sync.WaitGroup
	g.Go(func() { id, unidentified = db.Identity(ctx) })
	g.Go(func() { mark, others, unmarked = readMark(ctx, db, owner) })
	g.Go(func() { claims, unclaimed = db.Claims(ctx) })
	g.Wait()
	if unidentified != nil {
		return f, unidentified
	}
	f.identity = upgradestate.Identity{Cluster: id.Cluster, Database: id.Database}
	if id.Database == "" {
		return f, nil // no deployment ever used this database
	}
	// An identified database may still have no mark of this owner; that is a finding for callers.
	f.mark, f.others = mark, others
	if unmarked != nil {
		return f, unmarked
	}
	for _, c := range claims {
		f.claims[c.Kind] = c
	}
	return f, unclaimed
}

// readMark returns an owner's mark, or nil, and the other owners that have marks.
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

// lived reports whether the owner's namespace has a collection here.
func (f facts) lived(owner record.Owner) bool {
	for _, c := range f.claims {
		if c.Owner == owner {
			return true
		}
	}
	return false
}

// Check compares each database with the Deployment. It returns a *MismatchError for a wrong
// database, and if one side is older than the other. It skips a version while the Deployment does
// not know its database yet. On a mismatch it reads the record again before it reports: records and
// collection names change while it compares.
func Check(ctx context.Context, ds Deployments, databases map[string]record.Marker) error {
	return check(ctx, ds, databases, true)
}

// Same checks only that the databases are the right ones and have the collections that the record
// knows. It does not check which side is older. Callers with a possibly outdated copy of the record
// use it.
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
		// The same record twice around the comparison, so the mismatch is real.
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
			return nil, fmt.Errorf("check the owner of the database of %s: %w", version, err)
		}
		text := f.isMeant(d, ns)
		// isMeant comes first: the marks of a wrong database mean nothing.
		lost := text != "" && f.lacks(ns)
		if text == "" && whole {
			text = f.fits(d, ns)
		}
		if text != "" {
			return &MismatchError{Version: version, Found: text, Lost: lost}, nil
		}
	}
	return nil, nil
}

// isMeant returns the reason why the database is not the namespace's own; "" if it is.
func (f facts) isMeant(d upgradestate.Deployment, ns upgradestate.Namespace) string {
	const correct = "correct its endpoint, or its database or prefix, in dbs of the configuration"
	switch {
	case f.identity.Database == "":
		return fmt.Sprintf("it is empty or the wrong database: %s was never in it, and the deployment uses database %s in cluster %s (%s): %s%s",
			d.Name, ns.Identity.Database, known(ns.Identity.Cluster), ns.Hosts, correct, withoutIt(d, ns.Version))
	case f.identity.Differs(ns.Identity):
		return fmt.Sprintf("it is database %s in cluster %s, but the deployment uses %s in cluster %s (%s): %s",
			f.identity.Database, known(f.identity.Cluster), ns.Identity.Database, known(ns.Identity.Cluster), ns.Hosts, correct)
	}
	for _, k := range ns.Kinds {
		c, ok := f.claims[k.Kind]
		switch {
		case !ok:
			return fmt.Sprintf("its mark lacks collection %s of kind %s, which the deployment knows: the collection was dropped, or the database restored: restore the collection, or run 'dbcontroller recover'", k.ID, k.Kind)
		case c.Owner.Deployment != d.Name || c.Owner.Version != ns.Version:
			return fmt.Sprintf("the collection of kind %s belongs to %s: %s", k.Kind, c.Owner, correct)
		case f.isReplaced(d, ns, k):
			// The application replaced its own collection; controllers follow it.
		case k.ID != "" && c.Name == "" && c.Instead != "":
			return fmt.Sprintf("collection %s of kind %s is gone, and %s has its name %s: a shard was moved or resharded (movePrimary, moveCollection, reshardCollection, unshardCollection), "+
				"which recreates a collection, or somebody dropped it; the database refuses every process that knows the old one. Controllers adopt the new one if the changes of the database show that the cluster made it; otherwise run 'dbcontroller recover', which adopts it",
				k.ID, k.Kind, c.Instead, c.InsteadName)
		case k.ID != "" && c.ID != k.ID:
			return fmt.Sprintf("kind %s is collection %s, but the deployment knows it as %s: %s", k.Kind, c.ID, k.ID, recoverFirst)
		case k.ID != "" && c.Name == "":
			return fmt.Sprintf("collection %s of kind %s is gone: it was dropped, moved to another shard, or the database was restored: restore it, or run 'dbcontroller recover'", k.ID, k.Kind)
		}
	}
	return ""
}

// withoutIt names the commands that go on without the lost database of a version that is not served.
// Callers know what goes on without that of the current version.
func withoutIt(d upgradestate.Deployment, version string) string {
	const again = "stop all processes and run 'dbcontroller recover', after which an upgrade copies it again"
	switch {
	case version == d.CurrentVersion:
		return ""
	case d.LastSwitch == nil: // nothing can be retired yet
		return "; if it is lost for good, " + again
	default:
		return fmt.Sprintf("; if it is lost for good, give it up with 'dbcontroller complete --version %s', or %s", version, again)
	}
}

// lacks reports whether the database is not the namespace's own, or lacks a known collection. A
// collection that another one replaces, as after a move of a shard, does not count as missing.
func (f facts) lacks(ns upgradestate.Namespace) bool {
	if f.identity.Database == "" || f.identity.Differs(ns.Identity) {
		return true
	}
	return slices.ContainsFunc(ns.Kinds, func(k upgradestate.Kind) bool {
		c, ok := f.claims[k.Kind]
		return !ok || k.ID != "" && c.Name == "" && c.Instead == ""
	})
}

func known(cluster string) string {
	if cluster == "" {
		return "(unknown)"
	}
	return cluster
}

// fits returns the reason why the database and the Deployment are of different times; "" if they
// fit.
func (f facts) fits(d upgradestate.Deployment, ns upgradestate.Namespace) string {
	m := f.mark
	if m == nil {
		return fmt.Sprintf("it no longer has a mark of %s: the database was restored, or somebody removed the mark: restore a newer state, or run 'dbcontroller recover'", ns.Version)
	}
	current := ns.Version == d.CurrentVersion
	ahead := func(format string, args ...any) string {
		return fmt.Sprintf("the deployment is older than it (%s): %s", fmt.Sprintf(format, args...), recoverFirst)
	}
	switch {
	case m.Epoch > d.Epoch:
		return ahead("it was last seen in epoch %d%s, but the deployment is at %s in epoch %d", m.Epoch, currently(*m, ns.Version), d.CurrentVersion, d.Epoch)
	case m.Epoch == d.Epoch && m.Current != current:
		return ahead("in epoch %d%s, but in the deployment %s is current", m.Epoch, currently(*m, ns.Version), d.CurrentVersion)
	// The mark knows a switch that the record does not, so the record was restored.
	case current && m.Next != nil && m.Next.Epoch > d.Epoch && !m.Next.underWay(d):
		return ahead("a switch to %s, %s, may have been made from it", m.Next.To, m.Next.ID)
	case current && m.Aborted != nil && d.Upgrade != nil && d.Upgrade.ID == m.Aborted.ID && d.Upgrade.Attempt < m.Aborted.Attempt:
		return ahead("upgrade %s, which the deployment has in step %q, was aborted", d.Upgrade.ID, d.Upgrade.Step)
	// Only the two versions of the latest switch must have seen its epoch.
	case m.Epoch < switched(d) && takesPart(d, ns.Version) && !(m.Next != nil && m.Next.Epoch == switched(d) && m.Next.To == d.CurrentVersion):
		return fmt.Sprintf("it is older than the deployment (it was last seen in epoch %d, but the deployment is at %s in epoch %d): it was restored from a backup: restore a newer state, or run 'dbcontroller recover'",
			m.Epoch, d.CurrentVersion, d.Epoch)
	}
	seen, err := m.Deployment()
	if err != nil {
		return err.Error()
	}
	// Names only count up. A database that has seen a higher number is newer than the record.
	before, _ := seen.Namespace(ns.Version)
	for _, k := range ns.Kinds {
		if old, ok := before.Kind(k.Kind); ok && old.NextSeq > k.NextSeq {
			return ahead("kind %s already had the name or mark number %d, but the deployment would use %d again", k.Kind, old.NextSeq-1, k.NextSeq)
		}
		c := f.claims[k.Kind]
		if k.ID == "" || slices.Contains(names(k), c.Name) || f.isReplaced(d, ns, k) {
			continue
		}
		// A name that no controller gives shows a rename by hand, not an outdated record.
		if c.Name != k.Kind && !hiddenName(k.Kind, c.Name) {
			return fmt.Sprintf("somebody else renamed collection %s of kind %s to %s: rename it back to %s", k.ID, k.Kind, c.Name, k.Physical)
		}
		return ahead("kind %s has the name %s, but the deployment has it at %s", k.Kind, c.Name, k.Physical)
	}
	return ""
}

// switched returns the epoch that the latest switch began. Later epochs, as after a restore, begin
// without a switch and leave the collections where they are. The marks follow later, so a process that
// reads a mark in between must not take its database for a backup.
func switched(d upgradestate.Deployment) uint64 {
	if last := d.LastSwitch; last != nil && last.Outdated && last.Epoch != 0 {
		return last.Epoch + 1
	}
	return d.Epoch
}

func (f facts) isReplaced(d upgradestate.Deployment, ns upgradestate.Namespace, k upgradestate.Kind) bool {
	_, replaced := f.replaced(d, ns, k)
	return replaced
}

// hiddenName reports whether only this project gives a kind that name.
func hiddenName(kind, name string) bool {
	k, _, hidden := record.KindOfPhysical(name)
	return hidden && k == kind
}

// names returns the names that a kind may have now: during a rename, both.
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

// underWay reports whether the record is still in this very switch, before its end.
func (n Next) underWay(d upgradestate.Deployment) bool {
	u := d.Upgrade
	if u == nil || u.ID != n.ID {
		return false
	}
	switch u.Step {
	case upgradestate.StepSealSource:
		return u.Attempt == n.Attempt
	case upgradestate.StepAbort:
		// An abort counts as an attempt of its own.
		return u.Attempt == n.Attempt+1
	case upgradestate.StepNone, upgradestate.StepHold, upgradestate.StepFence, upgradestate.StepDrain, upgradestate.StepSealTarget:
		return false
	default:
		return false
	}
}

// takesPart reports whether the latest switch left or entered the version.
func takesPart(d upgradestate.Deployment, version string) bool {
	return d.LastSwitch != nil && (d.LastSwitch.From == version || d.LastSwitch.To == version)
}
