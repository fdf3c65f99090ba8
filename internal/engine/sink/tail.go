package sink

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"dbcontroller.dev/internal/base/closing"
	"dbcontroller.dev/record"
)

// tail writes the changes of a stream until it fails.
func (f *Follower) tail(ctx context.Context, stream record.Stream, alive func()) error {
	defer func() {
		if err := closing.Bounded(ctx, stream.Close); err != nil {
			f.log.Debug("change stream is not closed", slog.Any("error", err))
		}
	}()
	for {
		batch, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		if err := f.apply(ctx, batch); err != nil {
			return err
		}
		alive()
		f.reached(batch.Pos)
	}
}

// apply writes the changed records of a batch, and then its position.
func (f *Follower) apply(ctx context.Context, batch record.ChangeBatch) error {
	var dirty []record.Selector
	seen := map[record.Selector]bool{}
	for _, c := range batch.Changes {
		sel := record.Selector{Kind: c.Kind, Key: c.Key}
		// A marker is a fence and changes no record. Names that are no strings cannot be served.
		if _, named := c.Key.Name(); c.Marker != "" || !named || seen[sel] || f.cfg.Kinds[c.Kind] == nil {
			continue
		}
		seen[sel] = true
		dirty = append(dirty, sel)
	}
	if len(dirty) == 0 {
		return f.pass(ctx, batch.Pos)
	}
	err := f.read(ctx, dirty, batch.Pos.At, func(chunk []record.Selector, snap record.Snapshot) error {
		items := f.items(chunk, snap)
		last := &chunk[len(chunk)-1] == &dirty[len(dirty)-1]
		return f.write(ctx, items, func(now *State) {
			if last { // before that, the position does not cover the batch
				now.Position = batch.Pos
			}
		})
	})
	if err != nil {
		return err
	}
	return f.purge(ctx)
}

// items returns the writes for the selected records as a snapshot shows them.
func (f *Follower) items(sels []record.Selector, snap record.Snapshot) []Item {
	guard := record.Guard{Epoch: f.generation(), Version: snap.Version}
	at := map[record.Selector]record.Record{}
	for _, r := range snap.Records {
		at[record.Selector{Kind: r.Kind, Key: r.Key}] = r
	}
	items := make([]Item, 0, len(sels))
	for _, sel := range sels {
		if r, there := at[sel]; there && (r.Doc != nil || r.Err != nil) {
			items = append(items, f.item(r, guard))
			continue
		}
		name, _ := sel.Key.Name()
		items = append(items, Item{Kind: sel.Kind, Name: name, Guard: guard})
		f.transformed(sel.Kind, name, nil)
	}
	return items
}

// item returns the write of one record. A record that cannot be transformed keeps an empty document.
func (f *Follower) item(r record.Record, guard record.Guard) Item {
	name, _ := r.Key.Name()
	doc, err := f.document(r)
	f.transformed(r.Kind, name, err)
	return Item{Kind: r.Kind, Name: name, Guard: guard, Doc: doc, Digest: doc.Digest()}
}

// failedMost bounds the remembered names of failed records.
const failedMost = 10_000

// transformed counts a record as failed or not.
func (f *Follower) transformed(kind, name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := f.failed[kind]
	if err == nil {
		delete(names, name)
		return
	}
	if len(names) == 0 {
		f.log.Warn("a record has no document; it is found by its name only", slog.String("kind", kind), slog.Any("error", err))
	}
	if names == nil {
		names = map[string]bool{}
		f.failed[kind] = names
	}
	if len(names) < failedMost {
		names[name] = true
	}
}

// pass notes a position without changes. It is stored from time to time only.
func (f *Follower) pass(ctx context.Context, pos record.Position) error {
	f.writing.Lock()
	due := time.Since(f.saved) >= saveEvery
	f.writing.Unlock()
	if due {
		if err := f.write(ctx, nil, func(now *State) { now.Position = pos }); err != nil {
			return err
		}
		return f.purge(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Position = pos
	return nil
}

// purge removes the tombstones that no late write can meet. Every write of this Follower is made
// from a snapshot that is not before its position. A tombstone from before a stored position is
// needed only for writes that were on their way then.
func (f *Follower) purge(ctx context.Context) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	f.mu.Lock()
	st := f.state
	f.mu.Unlock()
	// A scan may still write pages that it read long ago.
	if st.Scan != nil {
		f.keep = nil
		return nil
	}
	if n := len(f.keep); n == 0 || time.Since(f.keep[n-1].at) >= f.cfg.KeepTombstones/4 {
		f.keep = append(f.keep, kept{record.Guard{Epoch: st.Generation, Version: st.Position.At}, time.Now()})
	}
	if time.Since(f.keep[0].at) < f.cfg.KeepTombstones {
		return nil
	}
	before := f.keep[0].guard
	f.keep = slices.Delete(f.keep, 0, 1)
	return f.sink.Purge(ctx, before)
}

func (f *Follower) generation() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Generation
}
