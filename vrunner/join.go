package vrunner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/record"
)

// joinAttempts bounds how often the calls that write together are made again.
const joinAttempts = 10

// Join returns a store whose writes can be joined, and what joins them: all that calls write
// to the store in do, with the context that it is given or one derived from it, is one Write of
// the store below, made when do has returned nil. If it returns an error, nothing is written.
//
// In do, reads see what was written in it; others do not before it has ended. Each write has
// its conditions checked when it is made. What was written is then compared, whole, with what
// was there: if others have changed that meanwhile, do is run again from its beginning, at most
// ten times. What was only read is not compared. Subscriptions tell of what is written in the
// end. The writes must come one after another.
//
// It is for a request that is served by several (apiversion.Options.Together): a request that
// the database fenced is run again as a whole, for nothing of it was written.
func Join(store Store) (joined Store, together func(ctx context.Context, do func(ctx context.Context) error) error) {
	j := &joinedStore{Store: store}
	together = func(ctx context.Context, do func(context.Context) error) error {
		if j.of(ctx) != nil {
			return do(ctx) // the outer one writes
		}
		for attempt := 1; ; attempt++ {
			w := &joinedWrite{records: map[joinedKey]*joinedRecord{}}
			err := do(context.WithValue(ctx, j, w))
			if err != nil {
				return err
			}
			if err = j.commit(ctx, w); err == nil || !raced(err) {
				return err
			}
			if attempt == joinAttempts {
				return fmt.Errorf("calls that write together, %d times: %w", attempt, record.ErrMismatch)
			}
		}
	}
	if batch, ok := store.(BatchStore); ok {
		return &joinedBatch{j, batch}, together
	}
	return j, together
}

// raced reports that what is written is no more as it was.
func raced(err error) bool {
	return errors.Is(err, record.ErrMismatch) || errors.Is(err, record.ErrExists) || errors.Is(err, record.ErrNotFound)
}

// joinedStore is a store, and the key of what is written together in a context.
type joinedStore struct{ Store }

// joinedWrite is what was written in one run.
type joinedWrite struct {
	records map[joinedKey]*joinedRecord
	order   []joinedKey
}

type joinedKey struct {
	kind string
	key  record.Key
}

// joinedRecord is a record before and after; nil documents are absence.
type joinedRecord struct{ before, after []byte }

// of returns what is being written in a context, nil outside of together.
func (j *joinedStore) of(ctx context.Context) *joinedWrite {
	w, _ := ctx.Value(j).(*joinedWrite)
	return w
}

func (j *joinedStore) commit(ctx context.Context, w *joinedWrite) error {
	var ms []record.Mutation
	for _, k := range w.order {
		r := w.records[k]
		m := record.Mutation{Kind: k.kind, Key: k.key, Doc: r.after}
		switch {
		case r.before == nil && r.after == nil:
			continue // made and deleted again, or a delete of nothing
		case r.before == nil:
			m.Absent = true
		default:
			m.Match = record.MatchDoc(r.before)
		}
		ms = append(ms, m)
	}
	if len(ms) == 0 {
		return nil
	}
	return j.Store.Write(ctx, ms)
}

// Write notes the mutations, all or none, if their conditions hold.
func (j *joinedStore) Write(ctx context.Context, ms []record.Mutation) error {
	w := j.of(ctx)
	if w == nil {
		return j.Store.Write(ctx, ms)
	}
	next := map[joinedKey]joinedRecord{}
	var order []joinedKey
	for _, m := range ms {
		k := joinedKey{m.Kind, m.Key}
		r, again := next[k]
		if !again {
			var err error
			if r, err = j.written(ctx, w, k); err != nil {
				return err
			}
			order = append(order, k)
		}
		if err := holds(m, r.after); err != nil {
			return fmt.Errorf("%s %s: %w", m.Kind, m.Key, err)
		}
		r.after = m.Doc
		next[k] = r
	}
	for _, k := range order {
		if w.records[k] == nil {
			w.order = append(w.order, k)
		}
		r := next[k]
		w.records[k] = &r
	}
	return nil
}

// written is a record as the calls so far have left it.
func (j *joinedStore) written(ctx context.Context, w *joinedWrite, k joinedKey) (joinedRecord, error) {
	if r := w.records[k]; r != nil {
		return *r, nil
	}
	name, ok := k.key.Name()
	if !ok {
		return joinedRecord{}, fmt.Errorf("%s %s: the key is no string", k.kind, k.key)
	}
	rec, err := j.Store.Get(ctx, k.kind, name)
	if errors.Is(err, record.ErrNotFound) {
		return joinedRecord{}, nil
	}
	return joinedRecord{rec.Doc, rec.Doc}, err
}

// holds is the error of a condition that a document does not meet.
func holds(m record.Mutation, doc []byte) error {
	switch {
	case m.Absent && doc != nil:
		return record.ErrExists
	case (m.Exists || m.Match != nil) && doc == nil:
		return record.ErrNotFound
	case m.Match != nil && !m.Match.Holds(doc):
		return record.ErrMismatch
	default:
		return nil
	}
}

func (j *joinedStore) Get(ctx context.Context, kind, key string) (record.Record, error) {
	k := joinedKey{kind, record.StringKey(key)}
	if w := j.of(ctx); w != nil && w.records[k] != nil {
		doc := w.records[k].after
		if doc == nil {
			return record.Record{}, fmt.Errorf("%s %s: %w", kind, k.key, record.ErrNotFound)
		}
		return record.Record{Kind: kind, Key: k.key, Doc: doc}, nil
	}
	return j.Store.Get(ctx, kind, key)
}

func (j *joinedStore) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	w := j.of(ctx)
	if w == nil || len(w.order) == 0 {
		return j.Store.List(ctx, kind, prefix, after, limit)
	}
	return page(w, kind, prefix, after, limit,
		func(limit int) ([]record.Record, error) { return j.Store.List(ctx, kind, prefix, after, limit) },
		func(r record.Record) string { name, _ := r.Key.Name(); return name },
		func(_ string, k joinedKey, doc []byte) record.Record {
			return record.Record{Kind: kind, Key: k.key, Doc: doc}
		})
}

// joinedBatch is one over a store that reads much at once.
type joinedBatch struct {
	*joinedStore
	batch BatchStore
}

var _ BatchStore = (*joinedBatch)(nil)

func (j *joinedBatch) ListNames(ctx context.Context, kind, prefix, after string, limit int) ([]string, error) {
	w := j.of(ctx)
	if w == nil || len(w.order) == 0 {
		return j.batch.ListNames(ctx, kind, prefix, after, limit)
	}
	return page(w, kind, prefix, after, limit,
		func(limit int) ([]string, error) { return j.batch.ListNames(ctx, kind, prefix, after, limit) },
		func(name string) string { return name },
		func(name string, _ joinedKey, _ []byte) string { return name })
}

func (j *joinedBatch) Select(ctx context.Context, sels []record.Selector, asList bool) ([]record.Record, error) {
	recs, err := j.batch.Select(ctx, sels, asList)
	w := j.of(ctx)
	if err != nil || w == nil {
		return recs, err
	}
	recs = slices.DeleteFunc(recs, func(r record.Record) bool { return w.records[joinedKey{r.Kind, r.Key}] != nil })
	for _, k := range w.order {
		name, _ := k.key.Name()
		if doc := w.records[k].after; doc != nil && slices.ContainsFunc(sels, func(s record.Selector) bool {
			prefix, _ := s.Key.Name()
			return s.Kind == k.kind && (s.Key == k.key || s.Prefix && strings.HasPrefix(name, prefix))
		}) {
			recs = append(recs, record.Record{Kind: k.kind, Key: k.key, Doc: doc})
		}
	}
	return recs, nil
}

// page is what a list returns with what was written: stored returns so many of what is stored.
func page[T any](w *joinedWrite, kind, prefix, after string, limit int, stored func(limit int) ([]T, error), nameOf func(T) string, made func(name string, k joinedKey, doc []byte) T) ([]T, error) {
	if limit == 0 {
		limit = 1000
	}
	// So many more, that there are enough when those are left out that were changed.
	ask := limit + len(w.order)
	items, err := stored(ask)
	if err != nil {
		return nil, err
	}
	last := "" // how far the stored ones go; empty: to the end
	if len(items) == ask {
		last = nameOf(items[len(items)-1])
	}
	items = slices.DeleteFunc(items, func(i T) bool { return w.records[joinedKey{kind, record.StringKey(nameOf(i))}] != nil })
	for _, k := range w.order {
		name, _ := k.key.Name()
		if doc := w.records[k].after; doc != nil && k.kind == kind && strings.HasPrefix(name, prefix) && name > after && (last == "" || name <= last) {
			items = append(items, made(name, k, doc))
		}
	}
	slices.SortFunc(items, func(a, b T) int { return cmp.Compare(nameOf(a), nameOf(b)) })
	return items[:min(limit, len(items))], nil
}
