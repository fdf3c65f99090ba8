package controller

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
)

// ending is a database that ends the engine once the record answers a restore, as the record's new
// generation does. Then it may hang.
type ending struct {
	record.Namespace
	answered func() bool
	end      context.CancelFunc
	hangs    atomic.Bool
}

func (e *ending) Marks(ctx context.Context) ([]record.Mark, error) {
	if e.answered() {
		e.end()
		if e.hangs.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return e.Namespace.Marks(ctx)
}

// TestRestoreAnsweredByAnEngineThatEnds: the answer to a restore ends the engine that found it. The
// restore is dealt with all the same, and the next beat begins no further copy. If the database does not
// answer, the engine ends without that, and the next finding deals with the restore.
func TestRestoreAnsweredByAnEngineThatEnds(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"answers": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newRestores(t, "v2")
				ctx := t.Context()
				engine, end := context.WithCancel(ctx)
				defer end()
				before := images(get(ctx, t, w.store))
				db := &ending{Namespace: w.namespaces["v2"], end: end, answered: func() bool { return images(get(ctx, t, w.store)) != before }}
				db.hangs.Store(hangs)
				a := w.controller(map[string]record.Namespace{"v1": w.namespaces["v1"], "v2": db})
				w.restore(t, a)

				var found *identity.RestoredError
				if err := a.lives(engine, "v2"); !errors.As(err, &found) || engine.Err() == nil {
					t.Fatalf("the engine finds %v and has ended: %v", err, engine.Err())
				}
				db.hangs.Store(false)
				w.confirm(t)
				answered := get(ctx, t, w.store)
				err := a.lives(ctx, "v2")
				now := get(ctx, t, w.store)
				switch begun := images(now) != images(answered); {
				case !hangs && (err != nil || begun):
					t.Errorf("the next beat: %v, and images %+v after %+v", err, images(now), images(answered))
				case hangs && (!errors.As(err, &found) || !begun):
					t.Errorf("nobody has dealt with the restore: %v", err)
				}
				must(t, a.lives(ctx, "v2"))
			})
		})
	}
}
