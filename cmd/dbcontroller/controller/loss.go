package controller

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"

	"dbcontroller/deployment"
	pb "dbcontroller/gen/dbcontroller/v1"
	"dbcontroller/record"
	"dbcontroller/transform"
	"dbcontroller/verify"
)

var _ deployment.Loss = (*App)(nil)

// EstimateLoss compares the current version with the one that the latest switch came from,
// as that was left, and counts what a way back would not have. It writes nothing. What is
// written meanwhile may or may not be counted.
func (a *App) EstimateLoss(ctx context.Context, progress func(compared int64)) (*pb.LossReport, error) {
	d, err := a.deployment.Get(ctx)
	if err != nil {
		return nil, err
	}
	if d.LastSwitch == nil || d.LastSwitch.To != d.CurrentVersion {
		return nil, fmt.Errorf("version %s was not switched to: there is nothing to go back to", d.CurrentVersion)
	}
	from, to := d.CurrentVersion, d.LastSwitch.From
	source, target := a.namespaces[from], a.namespaces[to]
	if source == nil || target == nil {
		return nil, fmt.Errorf("versions %s and %s must both be configured", from, to)
	}
	dir, err := a.registry.Direction(from, to)
	if err != nil {
		return nil, err
	}
	src, dst := tokens(d, from), tokens(d, to)
	return newLoss(source, target, dir, src, dst, progress).count(ctx)
}

const (
	lossPage = 1000
	// maxLoss bounds what is remembered of groups that were counted.
	maxLoss = 5_000_000
	// lossExamples are what people look at.
	lossExamples = 10
)

// loss counts groups of the source that the target does not have, or has otherwise, and
// those that it has alone.
type loss struct {
	source, target record.Reader
	dir            transform.Direction
	src, dst       record.Tokens
	progress       func(int64)
	report         *pb.LossReport
	seed           maphash.Seed
	counted        map[uint64]struct{} // groups, for each is met on pages of several kinds
}

func newLoss(source, target record.Reader, dir transform.Direction, src, dst record.Tokens, progress func(int64)) *loss {
	return &loss{
		source: source, target: knownKinds{target}, dir: dir, src: src, dst: dst, progress: progress,
		report: &pb.LossReport{}, seed: maphash.MakeSeed(), counted: map[uint64]struct{}{},
	}
}

// knownKinds reads what is there of a namespace: one that nobody has brought level since it
// was left lacks the kinds that only a sync to it makes, its lineage.
type knownKinds struct{ record.Reader }

func (k knownKinds) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	req.Select = slices.DeleteFunc(slices.Clone(req.Select), func(s record.Selector) bool {
		_, known := req.Tokens[s.Kind]
		return !known
	})
	if len(req.Select) == 0 {
		return record.Snapshot{}, nil
	}
	return k.Reader.Read(ctx, req)
}

func (l *loss) count(ctx context.Context) (*pb.LossReport, error) {
	c := verify.New(l.source, l.target, l.dir)
	for _, k := range l.dir.SourceKinds() {
		if !transform.SyncsFrom(l.dir, k.Name) {
			continue
		}
		err := l.walk(ctx, func(r record.Range) (transform.Comparison, error) {
			p, err := c.SourcePage(ctx, l.src, l.dst, k.Name, r, lossPage)
			l.report.Compared += int64(p.Compared)
			return p, err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, k := range l.dir.TargetKinds() {
		if _, known := l.dst[k.Name]; !known || !transform.SyncsTo(l.dir, k.Name) {
			continue
		}
		err := l.walk(ctx, func(r record.Range) (transform.Comparison, error) {
			return c.TargetPage(ctx, l.src, l.dst, k.Name, r, lossPage)
		})
		if err != nil {
			return nil, err
		}
	}
	l.report.Compared += l.report.Deleted // the source does not have them
	return l.report, nil
}

// walk goes through the pages of a kind.
func (l *loss) walk(ctx context.Context, page func(record.Range) (transform.Comparison, error)) error {
	for rest, done := (record.Range{}), false; !done; {
		p, err := page(rest)
		if err != nil {
			return err
		}
		rest, done = p.Next, p.Done
		if err := l.differ(ctx, p.Differ); err != nil {
			return err
		}
		if len(l.counted) > maxLoss {
			return fmt.Errorf("more than %d groups differ: too many to count them one by one", maxLoss)
		}
		l.progress(l.report.Compared)
	}
	return nil
}

// first reports whether a group is met for the first time.
func (l *loss) first(id transform.GroupID) bool {
	h := maphash.Comparable(l.seed, id)
	_, met := l.counted[h]
	l.counted[h] = struct{}{}
	return !met
}

// differ counts groups that differ.
func (l *loss) differ(ctx context.Context, ids []transform.GroupID) error {
	var named, units []transform.GroupID
	for _, id := range ids {
		switch {
		case l.dir.LineageKind(id.Spec) != "":
			units = append(units, id)
		case l.first(id):
			named = append(named, id)
		}
	}
	if err := l.named(ctx, named); err != nil {
		return err
	}
	return l.units(ctx, units)
}

// named counts groups by name.
func (l *loss) named(ctx context.Context, ids []transform.GroupID) error {
	if len(ids) == 0 {
		return nil
	}
	now, _, err := transform.ReadSource(ctx, l.source, l.dir, l.src, ids, record.Version{})
	if err != nil {
		return err
	}
	left, err := transform.ReadTarget(ctx, l.target, l.dir, l.dst, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		l.add(l.nameOf(id), len(now[id].Records) > 0, len(left[id].Records) > 0)
	}
	return nil
}

// units counts groups by content. What has to be written together counts as one group: a
// record that moved between two of them is one change.
func (l *loss) units(ctx context.Context, ids []transform.GroupID) error {
	r := transform.Resolver{
		Direction: l.dir, Source: l.source, Target: l.target, SourceTokens: l.src, TargetTokens: l.dst,
		Apart: map[transform.GroupID]bool{},
	}
	for len(ids) > 0 {
		cs, left, err := r.Resolve(ctx, ids, record.Version{})
		if err != nil {
			return err
		}
		for i := range cs {
			c := &cs[i]
			for _, f := range c.Failed {
				if r.Apart[f.Unit] = true; l.first(f.Unit) {
					l.add(l.nameOf(f.Unit), true, true) // nobody can tell what the target has of it
				}
			}
			if len(c.Failed) > 0 {
				left = append(left, c.Rest()...)
			} else if err := l.component(ctx, c); err != nil {
				return err
			}
		}
		ids = left
	}
	return nil
}

func (l *loss) component(ctx context.Context, c *transform.Component) error {
	if c.Level {
		return nil
	}
	members := c.Members()
	all := map[transform.GroupID]bool{}
	for _, id := range append(slices.Clone(members), c.Units...) {
		all[id] = true
	}
	met := false
	for id := range all {
		met = !l.first(id) || met
	}
	if met || len(c.Units) == 0 {
		return nil
	}
	req := record.ReadRequest{Tokens: l.dst}
	for _, w := range c.Write.Writes {
		if !transform.IsLineage(w.Kind) {
			req.Select = append(req.Select, record.Selector{Kind: w.Kind, Key: w.Key})
		}
	}
	snap, err := l.target.Read(ctx, req)
	if err != nil {
		return fmt.Errorf("read target: %w", err)
	}
	there := slices.ContainsFunc(snap.Records, func(r record.Record) bool { return !r.Tombstone })
	if len(members) == 0 && !there {
		return nil // what differs is the lineage alone
	}
	name := c.Units[0]
	if len(members) > 0 {
		name = members[0]
	}
	l.add(l.nameOf(name), len(members) > 0, there)
	return nil
}

// add counts one group, by whether it is there now, and was when the target was left.
func (l *loss) add(name string, now, before bool) {
	what, n := "changed", &l.report.Changed
	switch {
	case !before:
		what, n = "created", &l.report.Created
	case !now:
		what, n = "deleted", &l.report.Deleted
	}
	*n++
	if len(l.report.Examples) < lossExamples {
		l.report.Examples = append(l.report.Examples, what+" "+name)
	}
}

// nameOf is what people find a group by.
func (l *loss) nameOf(id transform.GroupID) string {
	for _, s := range append(l.dir.SourceSelect(id), l.dir.TargetSelect(id)...) {
		return s.Kind + "/" + s.Key.String()
	}
	return id.Name
}
