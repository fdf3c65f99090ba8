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
	// maxLoss bounds the memory for counted groups.
	maxLoss = 5_000_000
	// lossExamples is the number of examples for operators.
	lossExamples = 10
)

// Loss counts the differences that a return to an abandoned version would lose: groups that the
// target lacks, has in an older state, or still has after their deletion.
type Loss struct {
	Compared int64 // groups of both sides
	Created  int64 // created since; the target lacks them
	Changed  int64 // changed since; the target has the old state
	Deleted  int64 // deleted since; the target still has them
	// Examples name some of these groups in the order of discovery, each with its change, kind and
	// key.
	Examples []string
}

// EstimateLoss compares source and target at their views, and counts the groups that a return to
// the target would lose. It writes nothing. It remembers a number for each differing group and
// returns an error beyond 5 million. After each page it calls progress with the number of compared
// groups.
func EstimateLoss(ctx context.Context, source, target record.Reader, dir transform.Direction, src, dst transform.View, progress func(compared int64)) (Loss, error) {
	l := loss{
		source: source, target: knownKinds{target}, dir: dir, src: src, dst: dst, progress: progress,
		seed: maphash.MakeSeed(), counted: map[uint64]struct{}{},
	}
	err := l.count(ctx)
	return l.report, err
}

// loss is a running estimate.
type loss struct {
	source, target record.Reader
	dir            transform.Direction
	src, dst       transform.View
	progress       func(int64)
	report         Loss
	seed           maphash.Seed
	counted        map[uint64]struct{} // hashes of groups; several kinds may show one group
}

// knownKinds reads only the existing kinds of a namespace. A namespace that received no sync since
// it was left lacks the kinds that only a sync creates, such as lineage.
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

// count walks all kinds of both sides.
func (l *loss) count(ctx context.Context) error {
	c := New(l.source, l.target, l.dir)
	for _, k := range l.dir.SourceKinds() {
		// A discontinued kind has no counterpart to compare with.
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
	// The target's pages find the groups that the source no longer has.
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
	l.report.Compared += l.report.Deleted // the source pages did not count them
	return nil
}

// walk calls page until the kind is done, and counts the differences.
func (l *loss) walk(ctx context.Context, c *Comparer, page func(record.Range) (transform.Comparison, error)) error {
	for rest, done := (record.Range{}), false; !done; {
		p, err := page(rest)
		if err != nil {
			return err
		}
		rest, done = p.Next, p.Done
		// Count at once: keeping all ids of a large difference would need too much memory.
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

// first reports whether a group was not met before, and remembers it.
func (l *loss) first(id transform.GroupID) bool {
	met := l.met(id)
	l.counted[maphash.Comparable(l.seed, id)] = struct{}{}
	return !met
}

func (l *loss) met(id transform.GroupID) bool {
	_, met := l.counted[maphash.Comparable(l.seed, id)]
	return met
}

// differ counts differing groups. A component, the groups that one transaction must write, counts
// as one group: a record that moved between two groups by content is one change.
func (l *loss) differ(ctx context.Context, c *Comparer, ids []transform.GroupID) error {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id transform.GroupID) bool {
		return l.met(id) && l.dir.LineageKind(id.Spec) == "" // a page of another of its kinds counted it
	})
	return c.Each(ctx, l.src, l.dst, ids, func(c *transform.Component) error {
		members, held := c.Members(), c.Held()
		if len(c.Failed) > 0 {
			// For groups by content nothing shows whether the target has them.
			now, before := c.ByContent() || len(members) > 0, c.ByContent() || held
			for _, f := range c.Failed {
				if l.first(f.Unit) {
					l.add(l.nameOf(f.Unit), now, before)
				}
			}
			return nil
		}
		// A component is met on a page of each of its kinds, and counts only the first time.
		if c.InSync || !l.firstOf(append(slices.Clone(c.Units), members...)) || len(c.Units) == 0 {
			return nil
		}
		if len(members) == 0 && !held {
			return nil // only the lineage differs
		}
		name := c.Units[0]
		if len(members) > 0 {
			name = members[0]
		}
		l.add(l.nameOf(name), len(members) > 0, held)
		return nil
	})
}

// firstOf reports whether none of a component's groups was met before, and remembers all of them.
func (l *loss) firstOf(ids []transform.GroupID) bool {
	first := true
	all := map[transform.GroupID]bool{}
	// Do not stop at the first hit: every group must be remembered.
	for _, id := range ids {
		if !all[id] {
			all[id] = true
			first = l.first(id) && first
		}
	}
	return first
}

// add counts one group, by its presence now and at the time when the target was left.
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

// nameOf returns the kind and key under which operators find a group.
func (l *loss) nameOf(id transform.GroupID) string {
	for _, s := range append(l.dir.SourceSelect(id), l.dir.TargetSelect(id)...) {
		return s.Kind + "/" + s.Key.String()
	}
	return id.Name
}
