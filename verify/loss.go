package verify

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

const (
	lossPage = 1000
	// maxLoss bounds what is remembered of groups that were counted.
	maxLoss = 5_000_000
	// lossExamples are what people look at.
	lossExamples = 10
)

// Loss is what a return to a version as it was left would not have: the groups of the source
// that the target lacks or has otherwise, and those that the target has alone.
type Loss struct {
	Compared int64 // groups of both sides
	Created  int64 // since the target was left: it lacks them
	Changed  int64 // since then: it has them as they were
	Deleted  int64 // since then: it has them still
	// Examples are some of the groups, in the order in which they were met: what became of
	// each, its kind and its key.
	Examples []string
}

// EstimateLoss compares source and target as their views show them, and counts what a return
// to the target would lose. It writes nothing, and remembers a number for each group that
// differs: more than 5 million are an error. progress is told how many groups were compared,
// after each page.
func EstimateLoss(ctx context.Context, source, target record.Reader, dir transform.Direction, src, dst transform.View, progress func(compared int64)) (Loss, error) {
	l := loss{
		source: source, target: knownKinds{target}, dir: dir, src: src, dst: dst, progress: progress,
		seed: maphash.MakeSeed(), counted: map[uint64]struct{}{},
	}
	err := l.count(ctx)
	return l.report, err
}

// loss is one estimate while it is made.
type loss struct {
	source, target record.Reader
	dir            transform.Direction
	src, dst       transform.View
	progress       func(int64)
	report         Loss
	seed           maphash.Seed
	counted        map[uint64]struct{} // groups, for each is met on pages of several kinds
}

// knownKinds reads what is there of a namespace: one that nothing was synced to since it
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

func (l *loss) count(ctx context.Context) error {
	c := New(l.source, l.target, l.dir)
	for _, k := range l.dir.SourceKinds() {
		if !transform.SyncsFrom(l.dir, k.Name) {
			continue
		}
		err := l.walk(ctx, c, func(r record.Range) (transform.Comparison, error) {
			p, err := c.SourcePage(ctx, l.src, l.dst, k.Name, r, lossPage)
			l.report.Compared += int64(p.Compared)
			return p, err
		})
		if err != nil {
			return err
		}
	}
	for _, k := range l.dir.TargetKinds() {
		if _, known := l.dst.Tokens[k.Name]; !known || !transform.SearchedTo(l.dir, k.Name) {
			continue
		}
		err := l.walk(ctx, c, func(r record.Range) (transform.Comparison, error) {
			return c.TargetPage(ctx, l.src, l.dst, k.Name, r, lossPage)
		})
		if err != nil {
			return err
		}
	}
	l.report.Compared += l.report.Deleted // the source does not have them
	return nil
}

// walk goes through the pages of a kind.
func (l *loss) walk(ctx context.Context, c *Comparer, page func(record.Range) (transform.Comparison, error)) error {
	for rest, done := (record.Range{}), false; !done; {
		p, err := page(rest)
		if err != nil {
			return err
		}
		rest, done = p.Next, p.Done
		if err := l.differ(ctx, c, p.Differ); err != nil {
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
	met := l.met(id)
	l.counted[maphash.Comparable(l.seed, id)] = struct{}{}
	return !met
}

func (l *loss) met(id transform.GroupID) bool {
	_, met := l.counted[maphash.Comparable(l.seed, id)]
	return met
}

// differ counts groups that differ. What has to be written together counts as one group: a
// record that moved between two groups by content is one change.
func (l *loss) differ(ctx context.Context, c *Comparer, ids []transform.GroupID) error {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id transform.GroupID) bool {
		return l.met(id) && l.dir.LineageKind(id.Spec) == "" // by a page of another of its kinds
	})
	return c.Each(ctx, l.src, l.dst, ids, func(c *transform.Component) error {
		members, held := c.Members(), c.Held()
		if len(c.Failed) > 0 {
			// Nobody can tell what the target has of groups by content.
			now, before := c.ByContent() || len(members) > 0, c.ByContent() || held
			for _, f := range c.Failed {
				if l.first(f.Unit) {
					l.add(l.nameOf(f.Unit), now, before)
				}
			}
			return nil
		}
		if c.InSync || !l.firstOf(append(slices.Clone(c.Units), members...)) || len(c.Units) == 0 {
			return nil
		}
		if len(members) == 0 && !held {
			return nil // what differs is the lineage alone
		}
		name := c.Units[0]
		if len(members) > 0 {
			name = members[0]
		}
		l.add(l.nameOf(name), len(members) > 0, held)
		return nil
	})
}

// firstOf reports whether none of a component's groups was met.
func (l *loss) firstOf(ids []transform.GroupID) bool {
	first := true
	all := map[transform.GroupID]bool{}
	for _, id := range ids {
		if !all[id] {
			all[id] = true
			first = l.first(id) && first
		}
	}
	return first
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
