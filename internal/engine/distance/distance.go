// Package distance measures how far away a database is. Work that waits for many answers of a far
// database does several things at once, which would only cost a near one memory.
package distance

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

// Near is the longest time in which a near database answers.
const Near = 20 * time.Millisecond

// looks is the number of answers of a far database that Of waits for. With fewer, a busy machine could
// seem far away.
const looks = 5

// Positioner is the part of record.Namespace that Of asks.
type Positioner interface {
	Position(ctx context.Context) (record.Position, error)
}

// Of returns the shortest time of a few answers of a database. Load and new connections lengthen an
// answer, and nothing shortens it. So one answer within Near is enough, and Of then asks no further.
func Of(ctx context.Context, db Positioner) (least time.Duration, err error) {
	for i := range looks {
		begun := time.Now()
		if _, err := db.Position(ctx); err != nil {
			return 0, err
		}
		if took := time.Since(begun); i == 0 || took < least {
			least = took
		}
		if least <= Near {
			break
		}
	}
	return least, nil
}

// Farther returns the distance of the database that is farther away.
func Farther(ctx context.Context, one, other Positioner) (time.Duration, error) {
	var a, b time.Duration
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		a, err = Of(ctx, one)
		return err
	})
	g.Go(func() (err error) {
		b, err = Of(ctx, other)
		return err
	})
	err := g.Wait()
	return max(a, b), err
}
