package memstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"dbcontroller.dev/record"
)

// Swap replaces each record that still equals Was. It releases the lock in between, so that no
// caller can rely on several swaps being atomic.
func (s *Store) Swap(ctx context.Context, tok record.Token, swaps []record.Swap) ([]record.Result, error) {
	results := make([]record.Result, 0, len(swaps))
	for _, w := range swaps {
		res, err := s.swap(ctx, tok, w)
		if err != nil {
			return nil, fmt.Errorf("swap %s %s: %w", tok.Kind, w.Key, err)
		}
		results = append(results, res)
	}
	return results, nil
}

func (s *Store) swap(ctx context.Context, tok record.Token, w record.Swap) (record.Result, error) {
	col, err := s.open(ctx, tok, s.resolve)
	if err != nil {
		return record.Result{}, err
	}
	defer s.cluster.mu.Unlock()
	// A swap is a client's write, so fences without a rename stop it too.
	if col.mark != "" || len(s.cluster.blocked) > 0 {
		return record.Result{}, fmt.Errorf("as %s: %w", col.name, record.ErrFenced)
	}
	t := s.newTxn()
	st := t.get(col, w.Key)
	if !st.live() || !bytes.Equal(st.doc, w.Was) {
		return record.Result{Outcome: record.Changed}, nil
	}
	if err := errors.Join(record.CheckReserved(tok, w.Doc), record.CheckSwap(w)); err != nil {
		return record.Result{Outcome: record.Refused, Err: err}, nil
	}
	t.set(col, w.Key, state{doc: w.Doc, guard: beside(col, st)})
	err = t.commit(false)
	// A missing label concerns the writer and not this record, so the whole call fails.
	if errors.Is(err, record.ErrLabel) {
		return record.Result{}, err
	}
	if err != nil {
		return record.Result{Outcome: record.Refused, Err: err}, nil
	}
	return record.Result{Outcome: record.Applied}, nil
}
