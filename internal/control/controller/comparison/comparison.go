// Package comparison compares the two sides of a direction when somebody asks: an operator, who wants
// to verify them or to know what a rollback loses, and a switch, which looks for foreign writes to
// its target.
//
// It is not for users and may change with any version.
package comparison

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Collections compares the indexes and options of both sides.
type Collections interface {
	Differences(ctx context.Context, d upgradestate.Deployment, to string) (differ, lacks []string, err error)
}

// Parts are the parts of a controller that a Comparison uses.
type Parts struct {
	Deployments *deployment.Store
	Registry    *transform.Registry
	Namespaces  map[string]record.Namespace // by version
	Collections Collections
	// Target returns the version to which the record's current version is synced, and Wants the one
	// to which this process will sync it.
	Target, Wants func(d upgradestate.Deployment) (version string, ok bool)
	// Copies reports whether a version is copied before an upgrade begins.
	Copies func(d upgradestate.Deployment, to string) bool
}

// Comparison compares the two sides of the direction that is synced. It is safe for concurrent use.
type Comparison struct{ Parts }

// New returns the Comparison of a controller.
func New(p Parts) *Comparison { return &Comparison{p} }

// Verify compares all synced records of source and target. It compares records again that changed
// meanwhile. It counts waived records separately.
func (c *Comparison) Verify(ctx context.Context, progress func(verify.Report)) (verify.Report, error) {
	d, err := c.Deployments.Get(ctx)
	if err != nil {
		return verify.Report{}, err
	}
	to, ok := c.Target(d)
	if !ok { // right after a switch the record names no version yet
		to, ok = c.Wants(d)
	}
	if !ok {
		return verify.Report{}, fmt.Errorf("version %s is active and nothing is synced from it: there is nothing to compare", d.CurrentVersion)
	}
	if d.Upgrade == nil && !c.Copies(d, to) {
		return verify.Report{}, fmt.Errorf("nothing was copied from %s to %s yet, because no upgrade runs and copy.auto is false: there is nothing to compare", d.CurrentVersion, to)
	}
	if err := c.copied(ctx, to); err != nil {
		return verify.Report{}, err
	}
	dir, err := c.Registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return verify.Report{}, err
	}
	if d, err = c.provisioned(ctx, d, dir); err != nil {
		return verify.Report{}, err
	}
	src, err := view(ctx, c.Namespaces[d.CurrentVersion], syncer.Tokens(d, d.CurrentVersion))
	if err != nil {
		return verify.Report{}, err
	}
	dst, err := view(ctx, c.Namespaces[to], syncer.Tokens(d, to))
	if err != nil {
		return verify.Report{}, err
	}
	total := records(ctx, c.Namespaces[d.CurrentVersion], src.Tokens, dir.SourceKinds(), func(kind string) bool { return transform.SyncsFrom(dir, kind) })
	twins := map[string]bool{} // kinds of the target that are read with those of the source
	for _, k := range dir.SourceKinds() {
		twins[dir.Twin(k.Name)] = true
	}
	total += records(ctx, c.Namespaces[to], dst.Tokens, dir.TargetKinds(), func(kind string) bool { return twins[kind] || transform.SearchedTo(dir, kind) })
	waived, err := c.waived(ctx, d, to)
	if err != nil {
		return verify.Report{}, err
	}
	// Parked groups are known to differ, so they are not reported as new differences.
	parked, err := c.parked(ctx, d, false)
	if err != nil {
		return verify.Report{}, err
	}
	rep, err := verify.New(c.Namespaces[d.CurrentVersion], c.Namespaces[to], dir).Run(ctx, src, dst, verify.Recheck{Waived: waived, Parked: parked}, func(r verify.Report) {
		if progress != nil {
			if r.Scanned > 0 {
				r.Total = max(total, r.Scanned)
			}
			progress(r)
		}
	})
	// Unparked differences are a result, not a failure: they are recorded below.
	if err != nil && rep.Unparked == 0 {
		return rep, err
	}
	var shapesErr error
	if rep.Shapes, rep.Lacks, shapesErr = c.Collections.Differences(ctx, d, to); shapesErr != nil {
		err = errors.Join(err, fmt.Errorf("compare indexes and options: %w", shapesErr))
	}
	if noteErr := c.noteCompared(ctx, d, to, rep); noteErr != nil {
		return rep, errors.Join(err, noteErr)
	}
	return countBreaches(rep, d), err
}

// provisionTime is how long a comparison waits for collections that a controller makes.
const provisionTime = 30 * time.Second

// provisioned returns the record once it has all kinds of the direction's target. Right after a
// switch a controller still makes the collections of lineage that only the way back needs.
func (c *Comparison) provisioned(ctx context.Context, d upgradestate.Deployment, dir transform.Direction) (upgradestate.Deployment, error) {
	missing := func(d upgradestate.Deployment) string {
		ns, _ := d.Namespace(dir.To())
		for _, k := range dir.TargetKinds() {
			if _, there := ns.Kind(k.Name); !there {
				return k.Name
			}
		}
		return ""
	}
	kind := missing(d)
	if kind == "" {
		return d, nil
	}
	watching, stop := context.WithTimeout(ctx, provisionTime)
	defer stop()
	for d = range c.Deployments.Watch(watching) {
		if d.CurrentVersion != dir.From() {
			return d, fmt.Errorf("version %s became active meanwhile: compare again", d.CurrentVersion)
		}
		if kind = missing(d); kind == "" {
			return d, nil
		}
	}
	if ctx.Err() != nil {
		return d, ctx.Err()
	}
	return d, fmt.Errorf("the database of %s has no collection for %s yet: a controller creates it; see the state of %s in 'get', and compare again", dir.To(), kind, dir.To())
}

// noteCompared records the result of a comparison, which may block the switch or end a block. If
// the record has changed meanwhile, the result is no longer valid and is dropped.
func (c *Comparison) noteCompared(ctx context.Context, d upgradestate.Deployment, to string, rep verify.Report) error {
	ns, _ := d.Namespace(to)
	_, err := c.Deployments.Apply(ctx, upgradestate.Compared{
		Version: to, Epoch: d.Epoch, Seen: ns.Images, Count: rep.Unparked, Names: rep.UnparkedExamples, At: time.Now().UTC().Format(time.RFC3339),
	})
	if errors.Is(err, upgradestate.ErrOutdated) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("record the result of the comparison: %w", err)
	}
	return nil
}

// sizers is the number of collections whose size is read at once.
const sizers = 8

// records estimates the number of records of some kinds. It is for display only, and 0 if a size is
// unknown.
func records(ctx context.Context, db record.Namespace, toks record.Tokens, kinds []record.KindSpec, counts func(kind string) bool) int64 {
	var total atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(sizers)
	for _, k := range kinds {
		tok, there := toks[k.Name]
		if !there || !counts(k.Name) {
			continue
		}
		g.Go(func() error {
			size, err := db.Size(ctx, tok)
			total.Add(size.Records)
			return err
		})
	}
	if g.Wait() != nil {
		return 0
	}
	return total.Load()
}

// view returns a view of a database that includes every write acknowledged so far.
func view(ctx context.Context, db record.Watcher, toks record.Tokens) (transform.View, error) {
	now, err := db.Position(ctx)
	return transform.View{Tokens: toks, NotBefore: now.At}, err
}

// copied returns an error while any shard copies. Records that are not copied yet would count as
// differences.
func (c *Comparison) copied(ctx context.Context, to string) error {
	ps, err := c.Deployments.AllProgress(ctx)
	if err != nil {
		return err
	}
	var copying int
	var records, total int64
	for _, p := range ps {
		records, total = records+p.Copied, total+p.Total
		if p.State == syncer.StateCopying {
			copying++
		}
	}
	if copying > 0 {
		return fmt.Errorf("%d shards still copy to %s (%d of about %d records): compare when all of them follow", copying, to, records, total)
	}
	return nil
}

var _ api.Loss = (*Comparison)(nil)

// EstimateLoss counts the changes that a rollback would lose. It compares the current version with
// the version before the latest switch, in the state that it had then. It writes nothing. Writes
// during the comparison may or may not be counted.
func (c *Comparison) EstimateLoss(ctx context.Context, progress func(compared int64)) (*pb.LossReport, error) {
	d, err := c.Deployments.Get(ctx)
	if err != nil {
		return nil, err
	}
	from, to := d.CurrentVersion, upgradestate.PreviousVersion(d)
	// After a restore of the current version, the other data are in the version that was synced.
	if followed, ok := upgradestate.Followed(d); ok && upgradestate.RestoredLine(d) != "" {
		to = followed.TargetVersion
	}
	if to == "" {
		return nil, fmt.Errorf("no switch to version %s was made, so there is no version to return to", from)
	}
	source, target := c.Namespaces[from], c.Namespaces[to]
	if source == nil || target == nil {
		return nil, fmt.Errorf("versions %s and %s must both be configured", from, to)
	}
	dir, err := c.Registry.Direction(from, to)
	if err != nil {
		return nil, err
	}
	src, err := view(ctx, source, syncer.Tokens(d, from))
	if err != nil {
		return nil, err
	}
	dst, err := view(ctx, target, syncer.Tokens(d, to))
	if err != nil {
		return nil, err
	}
	found, err := verify.EstimateLoss(ctx, source, target, dir, src, dst, progress)
	if err != nil {
		return nil, err
	}
	return &pb.LossReport{
		Compared: found.Compared, Created: found.Created, Changed: found.Changed, Deleted: found.Deleted, Examples: found.Examples,
	}, nil
}

// countBreaches counts the writes that passed a broken fence as mismatches of a comparison.
func countBreaches(rep verify.Report, d upgradestate.Deployment) verify.Report {
	for _, b := range upgradestate.OpenBreaches(d) {
		rep.Mismatched += max(1, b.Count)
		rep.Examples = append(rep.Examples, fmt.Sprintf("%s of %s: %s", b.Kind, b.Version, b.What))
	}
	return rep
}
