package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// leg is one direction of a round trip between a source and scratch collections.
type leg struct {
	dir     transform.Direction
	from    record.Reader
	src     transform.View // view of from
	to      *scratch
	epoch   uint64
	load    bool // load like a copy, assuming an empty target
	workers int  // workers that apply groups in parallel; 0: one
}

// tripWorkers is the number of parallel workers of a proof. They mostly wait for one collection
// after another, and for a majority of the servers.
const tripWorkers = 4

// failures collects the failed groups with their errors. It is safe for concurrent use.
type failures struct {
	mu sync.Mutex
	by map[transform.GroupID]error
}

func (f *failures) add(id transform.GroupID, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.by[id] = err
}

func (l leg) dst() transform.View { return transform.View{Tokens: l.to.toks} }

// apply applies groups to the target. failed holds the error of each group that could not be
// applied.
func (l leg) apply(ctx context.Context, ids []transform.GroupID) (failed map[transform.GroupID]error, err error) {
	found := failures{by: map[transform.GroupID]error{}}
	// Each worker has its own Transfer, because that keeps state between its calls.
	err = l.each(ctx, ids, func(ctx context.Context, ids []transform.GroupID) error {
		t := transform.Transfer{
			Resolver: transform.Resolver{
				Direction: l.dir, Source: l.from, Target: l.to, Epoch: l.epoch, Apart: map[transform.GroupID]bool{},
			},
			Write: l.to.apply,
			Fail: func(_ context.Context, f transform.Failure, _ record.Version) error {
				found.add(f.Unit, f.Err)
				return nil
			},
		}
		run := func(ids []transform.GroupID, bytes int) error {
			t.From, t.To = l.src.Within(bytes), l.dst().Within(bytes)
			// Load writes without guards, which is faster. The target is empty here.
			if l.load {
				t.Write = l.to.load
			}
			_, err := transform.Until(ids, func(ids []transform.GroupID) ([]transform.GroupID, error) {
				again, err := t.Once(ctx, ids)
				t.Write = l.to.apply // repeated groups may exist by now
				return again, err
			})
			return err
		}
		named, units := transform.Split(l.dir, ids)
		var sizes transform.Sizer
		if err := transform.Each(&sizes, named, run); err != nil {
			return err
		}
		// Groups by content depend on each other, so they run together.
		return run(units, transform.ReadBytes)
	})
	return found.by, err
}

// compare compares the groups that have not failed, as the engine does after a migration. It adds
// differing groups to failed.
func (l leg) compare(ctx context.Context, ids []transform.GroupID, failed map[transform.GroupID]error) error {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id transform.GroupID) bool { return failed[id] != nil })
	found := failures{by: failed}
	return l.each(ctx, ids, func(ctx context.Context, ids []transform.GroupID) error {
		return verify.New(l.from, l.to, l.dir).Each(ctx, l.src, l.dst(), ids, func(c *transform.Component) error {
			for _, id := range c.Differ() {
				found.add(id, transform.ErrDiffer)
			}
			for _, f := range c.Failed {
				found.add(f.Unit, f.Err)
			}
			return nil
		})
	})
}

// each splits groups among the workers. Groups of one kind stay together, because each read takes a
// command per kind. One worker gets all groups by content: their relations show only when they are
// read.
func (l leg) each(ctx context.Context, ids []transform.GroupID, do func(context.Context, []transform.GroupID) error) error {
	named, units := transform.Split(l.dir, ids)
	named = slices.SortedStableFunc(slices.Values(named), func(a, b transform.GroupID) int { return cmp.Compare(a.Spec, b.Spec) })
	g, ctx := errgroup.WithContext(ctx)
	workers := max(1, l.workers)
	g.SetLimit(workers)
	for part := range slices.Chunk(named, max(1, (len(named)+workers-1)/workers)) {
		g.Go(func() error { return do(ctx, part) })
	}
	if len(units) > 0 {
		g.Go(func() error { return do(ctx, units) })
	}
	return g.Wait()
}

// at is the place of a record.
type at struct {
	kind string
	key  record.Key
}

// differences names the records of want that are missing or changed in got, and the additional
// records of got. It ignores the order of fields, because a transformer may change that.
func differences(want, got []record.Record) []string {
	left := map[at]record.Record{}
	for _, r := range got {
		left[at{r.Kind, r.Key}] = r
	}
	var out []string
	for _, r := range want {
		have, ok := left[at{r.Kind, r.Key}]
		// Whatever remains in left had no original.
		delete(left, at{r.Kind, r.Key})
		switch {
		case !ok:
			out = append(out, fmt.Sprintf("%s %s is missing", r.Kind, r.Key))
		case !transform.SameFields(have.Doc, r.Doc):
			out = append(out, fmt.Sprintf("%s %s has changed", r.Kind, r.Key))
		}
	}
	for k := range left {
		out = append(out, fmt.Sprintf("%s %s did not exist before", k.kind, k.key))
	}
	slices.Sort(out)
	return out
}
