package recordio

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// Swap replaces each record that still has its expected content. Results have the order of swaps:
// Applied, Changed, or Refused. The transaction that writes also reads and compares the records, so
// a write in between conflicts with it. It compares bytes here, because the server's comparisons
// miss some differences.
func (n *Records) Swap(ctx context.Context, tok record.Token, swaps []record.Swap) ([]record.Result, error) {
	what := "swap in " + tok.Name
	results := make([]record.Result, len(swaps))
	s := &swapping{ns: n, tok: tok, swaps: swaps, results: results}
	var err error
	if s.place, err = wire.PlaceOf(tok); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	s.layouts = make([]wire.Layout, len(swaps))
	var all []int
	for i, w := range swaps {
		// Refuse invalid swaps first, so that they cannot fail the transaction.
		if s.layouts[i], err = wire.CheckDoc(w.Doc, !tok.Fixed); err == nil {
			err = errors.Join(record.CheckSwap(w), wire.CheckSize(w.Doc, s.layouts[i], 0))
		}
		if err != nil {
			results[i] = record.Result{Outcome: record.Refused, Err: err}
		} else {
			all = append(all, i)
		}
	}
	err = s.run(ctx, all)
	var refused *refusal
	if errors.As(err, &refused) {
		// A refused record fails the whole transaction, so try each record alone.
		for _, i := range all {
			if err = s.run(ctx, []int{i}); errors.As(err, &refused) {
				results[i], err = record.Result{Outcome: record.Refused, Err: s.ns.Located(ctx, s.place.Coll, refused.code, refused.err)}, nil
			}
			if err != nil {
				break
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return results, nil
}

// swapping is one call of Swap.
type swapping struct {
	ns      *Records
	tok     record.Token
	place   wire.Place
	swaps   []record.Swap
	layouts []wire.Layout // of the new documents
	results []record.Result
}

// run makes some of the swaps in one transaction.
func (s *swapping) run(ctx context.Context, which []int) error {
	if len(which) == 0 {
		return nil
	}
	byKey := make(map[record.Key]int, len(which))
	keys := make([]record.Key, 0, len(which))
	for _, i := range which {
		byKey[s.swaps[i].Key] = i
		keys = append(keys, s.swaps[i].Key)
	}
	return s.ns.Transact(ctx, "swap", func(ctx context.Context) error {
		// A retry starts over: compare sets the outcome of each match again.
		for _, i := range which {
			s.results[i] = record.Result{Outcome: record.Changed}
		}
		updates := writeCommand{verb: "update", place: s.place}
		defer updates.release()
		err := s.ns.findKeys(ctx, s.place, keys, ReadOptions{guards: !s.tok.Fixed}, func(doc []byte) error {
			return s.compare(&updates, byKey, doc)
		})
		if err != nil {
			return err
		}
		return s.ns.runWrites(ctx, &updates)
	})
}

// compare adds the update of a document that has its expected content.
func (s *swapping) compare(updates *writeCommand, byKey map[record.Key]int, doc []byte) error {
	l, err := wire.LayoutOf(doc, !s.tok.Fixed)
	if err != nil {
		return err
	}
	key, err := record.KeyOf(l.ID)
	if err != nil {
		return err
	}
	i, ok := byKey[key]
	if !ok {
		return nil
	}
	// A tombstone means that the record was deleted, which is a change.
	if _, tombstone := l.Guard(doc); tombstone {
		return nil
	}
	w := s.swaps[i]
	// Compare without the guard, which the caller never sees.
	if bytes.Equal(l.Strip(doc), w.Was) {
		updates.addReplace(i, w.Doc.Lookup("_id"), guardWrite{doc: w.Doc, layout: s.layouts[i]})
		s.results[i] = record.Result{Outcome: record.Applied}
	}
	return nil
}
