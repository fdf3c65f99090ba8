package memstore

import (
	"context"

	"dbcontroller.dev/record"
)

var _ record.Pager = (*Store)(nil)

// ListWith lists records, and reads those that also selects, at the present moment. It calls also
// while it holds the lock.
func (s *Store) ListWith(ctx context.Context, toks record.Tokens, list record.ListRequest, also func([]record.Record) ([]record.Selector, error)) (listed, with []record.Record, err error) {
	col, err := s.open(ctx, list.Token, s.resolve)
	if err != nil {
		return nil, nil, err
	}
	defer s.cluster.mu.Unlock()
	most := list.Bytes
	// The list must not be cut short at the limit: a larger result is an error.
	list.Bytes = 0
	listed = s.listed(col, list)
	// rest is the part of the limit that the list leaves for the selected records. 0 means no limit.
	rest := 0
	if most > 0 {
		for _, r := range listed {
			most -= len(r.Doc)
		}
		if most < 0 {
			return nil, nil, record.ErrTooLarge
		}
		rest = max(most, 1) // no document has one byte, so 1 allows none
	}
	// The lock is still held, so both parts show one moment.
	sels, err := also(listed)
	if err != nil {
		return nil, nil, err
	}
	cols, err := s.resolveAll(toks, kindsOf(sels))
	if err != nil {
		return nil, nil, err
	}
	with, err = gather(cols, record.ReadRequest{Select: sels, Bytes: rest}, s.cluster.clock)
	return listed, with, err
}

// SelectAt returns the selected live records of the present moment.
func (s *Store) SelectAt(ctx context.Context, req record.SelectRequest) (record.Snapshot, error) {
	if err := s.begin(ctx); err != nil {
		return record.Snapshot{}, err
	}
	defer s.cluster.mu.Unlock()
	cols, err := s.resolveAll(req.Tokens, kindsOf(req.Select))
	if err != nil {
		return record.Snapshot{}, err
	}
	recs, err := gather(cols, record.ReadRequest{Select: req.Select, Bytes: req.Bytes}, s.cluster.clock)
	return record.Snapshot{Version: versionAt(s.cluster.clock), Records: recs}, err
}

// Since returns the logged changes after a position.
func (s *Store) Since(ctx context.Context, kinds []record.KindSpec, after record.Position) (all record.ChangeBatch, err error) {
	if after.IsZero() {
		all.Pos, err = s.Position(ctx)
		return all, err
	}
	opened, err := s.Watch(ctx, after, kinds)
	if err != nil {
		return all, err
	}
	for {
		// With waited set, take returns at once.
		batch, _, err := opened.(*stream).take(ctx, true) //nolint:forcetypeassert // stream returns no other type
		if err != nil {
			return all, err
		}
		all.Changes, all.Pos, all.Wall = append(all.Changes, batch.Changes...), batch.Pos, max(all.Wall, batch.Wall)
		if len(batch.Changes) == 0 {
			return all, nil
		}
	}
}
