package preflight

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

// moves runs the renames and fences of the switch and of its rollback on scratch collections, and
// measures the renames of the switch.
func (p *proof) moves(ctx context.Context) (out proved, err error) {
	restore, err := p.prepare(ctx, p.old)
	if err != nil {
		return out, err
	}
	// Position takes about as long as a majority write, so it stands for one.
	start := time.Now()
	if _, err := p.older.Position(ctx); err != nil {
		return out, err
	}
	out.write = time.Since(start)
	if out.fence, err = p.old.together(ctx, func(ctx context.Context, k *scratchKind) error {
		return p.old.move(ctx, k, movable(k), 2, restore[k.class])
	}); err != nil {
		return out, err
	}
	// An abort removes fences, so removing them must work, too.
	if _, err := p.old.together(ctx, p.old.unfence); err != nil {
		return out, err
	}
	rename := func(s *scratch, seq uint64) (time.Duration, error) {
		return s.together(ctx, func(ctx context.Context, k *scratchKind) error {
			if k.tok.ID == "" {
				return nil // no identities on this server, so no rename
			}
			return s.move(ctx, k, record.FenceUUID, seq, "")
		})
	}
	// Position before the rename: the stream has to show everything after it.
	before, err := p.newer.Position(ctx)
	if err != nil {
		return out, err
	}
	if out.sealTarget, err = rename(p.new, 2); err != nil {
		return out, err
	}
	if out.last, err = rename(p.old, 3); err != nil || p.renamesOnly {
		return out, err
	}
	// The stream needs no more than the rename above, so the way back goes on beside it. It follows the
	// kinds under all their names, so the further renames do not end it. They change the kinds, so what
	// the stream needs of these is taken before.
	kinds := p.new.specs()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.seen(ctx, before, kinds) })
	g.Go(func() error { return p.movesBack(ctx) })
	return out, g.Wait()
}

// movesBack runs the rollback: the new side opens under its own names and is fenced, then the old
// side opens again.
func (p *proof) movesBack(ctx context.Context) error {
	open := func(s *scratch) error {
		_, err := s.together(ctx, func(ctx context.Context, k *scratchKind) error {
			if !k.spec.Fixed {
				return nil
			}
			return s.move(ctx, k, record.FenceUUID, 0, "")
		})
		return err
	}
	// The new side gets its own names, as after the flip.
	if err := open(p.new); err != nil {
		return err
	}
	if _, err := p.new.together(ctx, func(ctx context.Context, k *scratchKind) error {
		return p.new.move(ctx, k, movable(k), 3, p.newFences[k.class])
	}); err != nil {
		return err
	}
	// An aborted rollback removes the fence again.
	if _, err := p.new.together(ctx, p.new.unfence); err != nil {
		return err
	}
	if err := open(p.old); err != nil {
		return err
	}
	// The end of a direction purges tombstones, so try that as well.
	_, err := p.old.together(ctx, func(ctx context.Context, k *scratchKind) error {
		if k.class != record.FenceUUID && k.class != record.FenceView {
			return nil
		}
		return p.older.Purge(ctx, k.tok)
	})
	return err
}

// movable returns the fence class for a scratch collection. A proof never tries a fence that stops
// a whole cluster or locks a whole server. A rename takes about as long and stands for it.
func movable(k *scratchKind) record.FenceClass {
	switch k.class {
	case record.FenceWriteBlock, record.FenceView, record.FenceRole:
		return record.FenceUUID
	default:
		return k.class
	}
}

// prepare checks whether the database still allows the kinds' fence classes, as far as a quiet
// check can tell. It returns, by class, the data that lifting the fence needs.
func (p *proof) prepare(ctx context.Context, s *scratch) (map[record.FenceClass]string, error) {
	restore := map[record.FenceClass]string{}
	by := s.classes()
	// In a fixed order, so that repeated proofs report the same error first.
	for _, class := range sortedClasses(by) {
		if class == "" {
			continue // kinds without a class yet
		}
		k := by[class]
		_, r, err := s.ns.Prepare(ctx, k.tok, class)
		if err != nil {
			return nil, fmt.Errorf("fence class %s, as %s has it: %w", class, k.kind, err)
		}
		restore[class] = r
	}
	return restore, nil
}
