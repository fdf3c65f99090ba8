package sink

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"dbcontroller.dev/record"
)

// scan reads all records from the place in st on, while tail writes the changes.
func (f *Follower) scan(ctx context.Context, st State) error {
	begun, n := time.Now(), 0
	for _, kind := range slices.Sorted(maps.Keys(f.cfg.Kinds)) {
		if kind < st.Scan.Kind {
			continue // an earlier attempt has read it
		}
		from := record.Cursor(nil)
		if kind == st.Scan.Kind {
			from = st.Scan.From
		}
		for done := false; !done; {
			page, err := f.source.Scan(ctx, kind, from, pageSize, st.Position.At)
			if err != nil {
				return err
			}
			guard := record.Guard{Epoch: st.Generation, Version: page.Version}
			items := make([]Item, 0, len(page.Records))
			for _, r := range page.Records {
				if _, named := r.Key.Name(); named {
					items = append(items, f.item(r, guard))
				}
			}
			from, done = page.Next, page.Done
			next := &Scan{Kind: kind, From: from, Repair: st.Scan.Repair}
			if done {
				// The next kind comes after this one, whatever its name is.
				next.Kind, next.From = kind+"\x00", nil
			}
			if err := f.write(ctx, items, func(now *State) { now.Scan = next }); err != nil {
				return err
			}
			n += len(items)
		}
	}
	// All present records have this generation now. The others are gone.
	f.writing.Lock()
	err := f.sink.Forget(ctx, st.Generation)
	f.writing.Unlock()
	if err != nil {
		return fmt.Errorf("remove what is no longer there: %w", err)
	}
	if err := f.write(ctx, nil, func(now *State) { now.Scan = nil }); err != nil {
		return err
	}
	f.log.Info("all records were read", slog.Uint64("generation", st.Generation), slog.Int("records", n), slog.Duration("took", time.Since(begun)))
	f.settle()
	return nil
}
