package secrets

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// sweepEvery is the interval between two sweeps.
const sweepEvery = time.Minute

// JanitorV1 returns a controller of v1 that deletes secrets once they have been expired for keep.
func JanitorV1(v1 vrunner.Store, keep time.Duration) vrunner.Controller {
	table := tableV1(v1)
	return janitor(v1, keep, func(rec record.Record) (int64, error) {
		s, err := table.Decode(rec)
		return s.GetExpiresAt(), err
	})
}

// JanitorV2 returns the same controller for v2. It covers all regions.
func JanitorV2(v2 vrunner.Store, keep time.Duration) vrunner.Controller {
	table := tableV2(v2)
	return janitor(v2, keep, func(rec record.Record) (int64, error) {
		s, err := table.Decode(rec)
		return s.GetExpireTime().GetSeconds(), err
	})
}

// janitor builds the controller of either version. expiry is in Unix seconds, 0 for never. A switch
// ends its run, and the other version's janitor starts; it needs no knowledge of switches.
func janitor(store vrunner.Store, keep time.Duration, expiry func(record.Record) (int64, error)) vrunner.Controller {
	return vrunner.Controller{Name: "secrets-janitor", Leader: true, Run: func(ctx context.Context) error {
		tick := time.NewTicker(sweepEvery)
		defer tick.Stop()
		for {
			if err := sweep(ctx, store, time.Now().Add(-keep).Unix(), expiry); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}}
}

func sweep(ctx context.Context, store vrunner.Store, before int64, expiry func(record.Record) (int64, error)) error {
	for after := ""; ; {
		// A limit of 0 means pages of 1,000 records, so the sweep holds few in memory.
		recs, err := store.List(ctx, Kind, "", after, 0)
		if err != nil || len(recs) == 0 {
			return err
		}
		for _, rec := range recs {
			after, _ = rec.Key.Name() // List returns records with names only
			at, err := expiry(rec)
			if err != nil {
				return err
			}
			// Secrets without an expiry never expire.
			if at == 0 || at > before {
				continue
			}
			// A secret renewed since the read stays: the delete is conditional on the document.
			// Another process may also sweep.
			err = store.Write(ctx, []record.Mutation{{Kind: Kind, Key: rec.Key, Match: record.MatchDoc(rec.Doc)}})
			if err != nil && !errors.Is(err, record.ErrMismatch) && !errors.Is(err, record.ErrNotFound) {
				return fmt.Errorf("delete %s: %w", after, err)
			}
		}
	}
}
