package controller

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Verify compares all synced records of source and target. It compares records again that changed
// meanwhile. It counts waived records separately.
func (a *App) Verify(ctx context.Context, progress func(verify.Report)) (verify.Report, error) {
	d, err := a.deployment.Get(ctx)
	if err != nil {
		return verify.Report{}, err
	}
	to, ok := a.cfg.target(d)
	if !ok { // right after a switch the record names no version yet
		to, ok = a.cfg.wants(d)
	}
	if !ok {
		return verify.Report{}, fmt.Errorf("version %s is active and nothing is synced from it: there is nothing to compare", d.CurrentVersion)
	}
	if d.Upgrade == nil && !a.cfg.copies(d, to) {
		return verify.Report{}, fmt.Errorf("nothing was copied from %s to %s yet, because no upgrade runs and copy.auto is false: there is nothing to compare", d.CurrentVersion, to)
	}
	if err := a.copied(ctx, to); err != nil {
		return verify.Report{}, err
	}
	dir, err := a.registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return verify.Report{}, err
	}
	if d, err = a.provisioned(ctx, d, dir); err != nil {
		return verify.Report{}, err
	}
	src, err := view(ctx, a.namespaces[d.CurrentVersion], syncer.Tokens(d, d.CurrentVersion))
	if err != nil {
		return verify.Report{}, err
	}
	dst, err := view(ctx, a.namespaces[to], syncer.Tokens(d, to))
	if err != nil {
		return verify.Report{}, err
	}
	total := records(ctx, a.namespaces[d.CurrentVersion], src.Tokens, dir.SourceKinds(), func(kind string) bool { return transform.SyncsFrom(dir, kind) })
	twins := map[string]bool{} // kinds of the target that are read with those of the source
	for _, k := range dir.SourceKinds() {
		twins[dir.Twin(k.Name)] = true
	}
	total += records(ctx, a.namespaces[to], dst.Tokens, dir.TargetKinds(), func(kind string) bool { return twins[kind] || transform.SearchedTo(dir, kind) })
	waived, err := a.waived(ctx, d, to)
	if err != nil {
		return verify.Report{}, err
	}
	// Parked groups are known to differ, so they are not reported as new differences.
	parked, err := a.parked(ctx, d, false)
	if err != nil {
		return verify.Report{}, err
	}
	rep, err := verify.New(a.namespaces[d.CurrentVersion], a.namespaces[to], dir).Run(ctx, src, dst, verify.Recheck{Waived: waived, Parked: parked}, func(r verify.Report) {
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
	if rep.Shapes, rep.Lacks, shapesErr = a.collections.Differences(ctx, d, to); shapesErr != nil {
		err = errors.Join(err, fmt.Errorf("compare indexes and options: %w", shapesErr))
	}
	if noteErr := a.noteCompared(ctx, d, to, rep); noteErr != nil {
		return rep, errors.Join(err, noteErr)
	}
	return countBreaches(rep, d), err
}

// provisionTime is how long a comparison waits for collections that a controller makes.
const provisionTime = 30 * time.Second

// provisioned returns the record once it has all kinds of the direction's target. Right after a
// switch a controller still makes the collections of lineage that only the way back needs.
func (a *App) provisioned(ctx context.Context, d upgradestate.Deployment, dir transform.Direction) (upgradestate.Deployment, error) {
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
	for d = range a.deployment.Watch(watching) {
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
func (a *App) noteCompared(ctx context.Context, d upgradestate.Deployment, to string, rep verify.Report) error {
	ns, _ := d.Namespace(to)
	_, err := a.deployment.Apply(ctx, upgradestate.Compared{
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
func (a *App) copied(ctx context.Context, to string) error {
	ps, err := a.deployment.AllProgress(ctx)
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

var _ api.Loss = (*App)(nil)

// EstimateLoss counts the changes that a rollback would lose. It compares the current version with
// the version before the latest switch, in the state that it had then. It writes nothing. Writes
// during the comparison may or may not be counted.
func (a *App) EstimateLoss(ctx context.Context, progress func(compared int64)) (*pb.LossReport, error) {
	d, err := a.deployment.Get(ctx)
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
	source, target := a.namespaces[from], a.namespaces[to]
	if source == nil || target == nil {
		return nil, fmt.Errorf("versions %s and %s must both be configured", from, to)
	}
	dir, err := a.registry.Direction(from, to)
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
