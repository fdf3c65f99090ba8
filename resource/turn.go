package resource

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"sync/atomic"
)

// turns let the writes of one process that name the same resource go one after the other. Each of
// them changes the revision of that resource, so at the same time most would fail and start over.
// The database still decides, since other processes write too.
type turns struct {
	order int64 // of the tables in this process, so that no two writes wait for each other
	of    [64]chan struct{}
}

var tables atomic.Int64

func newTurns() *turns {
	t := &turns{order: tables.Add(1)}
	for i := range t.of {
		t.of[i] = make(chan struct{}, 1)
	}
	return t
}

// turn is the place of one name among the turns of its table.
type turn struct {
	*turns
	slot int
}

var seed = maphash.MakeSeed()

func (t *Table[M]) turn(name string) turn {
	return turn{t.turns, int(maphash.String(seed, name) % uint64(len(t.turns.of)))} //nolint:gosec // it is below 64
}

// await waits until the other writes of this process that name the same new resources are done. The
// caller calls done after its write.
func (t *Table[M]) await(ctx context.Context, name string, m, before M) (done func(), err error) {
	var all []turn
	_ = t.eachNew(name, m, before, func(f *reference[M], to string) error { // no error of its own
		all = append(all, f.Table.turn(to))
		return nil
	})
	slices.SortFunc(all, func(a, b turn) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.slot, b.slot)) })
	all = slices.Compact(all)
	taken := 0
	done = func() {
		for _, x := range all[:taken] {
			<-x.of[x.slot]
		}
	}
	for _, x := range all {
		select {
		case x.of[x.slot] <- struct{}{}:
			taken++
		case <-ctx.Done():
			done()
			return nil, context.Cause(ctx)
		}
	}
	return done, nil
}

// eachNew calls use for each name in m that before does not have, until an error. It leaves out the
// name of the resource itself, whose own write is the only one of its record in the transaction.
func (t *Table[M]) eachNew(name string, m, before M, use func(f *reference[M], to string) error) error {
	for _, f := range t.targets {
		had := f.names(before)
		for _, to := range f.names(m) {
			if _, old := slices.BinarySearch(had, to); old || f.kind == t.cfg.Kind && to == name {
				continue
			}
			if err := use(f, to); err != nil {
				return err
			}
		}
	}
	return nil
}
