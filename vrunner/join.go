package vrunner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
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
			again, err := j.try(ctx, do)
			if !again {
				return err
			}
			if attempt == joinAttempts {
				return fmt.Errorf("calls that write together, %d times: %w", attempt, record.ErrMismatch)
			}
		}
	}
	batch, selects := store.(BatchStore)
	bounded, bounds := store.(BoundedStore)
	switch {
	case selects && bounds:
		return struct {
			*joinedBatch
			joinedBounded
		}{&joinedBatch{j, batch}, joinedBounded{j, bounded}}, together
	case selects:
		return &joinedBatch{j, batch}, together
	case bounds:
		return struct {
			*joinedStore
			joinedBounded
		}{j, joinedBounded{j, bounded}}, together
	}
	return j, together
}

// try runs do once and writes what it has written. again reports that others have changed that.
func (j *joinedStore) try(ctx context.Context, do func(context.Context) error) (again bool, err error) {
	w := &joinedWrite{records: map[joinedKey]*joinedRecord{}, held: memory.Of(ctx).Hold()}
	defer w.held.Set(0)
	if err := do(context.WithValue(ctx, j, w)); err != nil {
		return false, err
	}
	err = j.commit(ctx, w)
	return raced(err), err
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
	bytes   int64 // of the documents
	held    *memory.Held
}

type joinedKey struct {
	kind string
	key  record.Key
}

// joinedRecord is a record before and after; nil documents are absence.
type joinedRecord struct{ before, after []byte }

func (r *joinedRecord) size() int64 { return int64(len(r.before) + len(r.after)) }

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
	bytes := w.bytes
	for _, k := range order {
		if r := w.records[k]; r != nil {
			bytes -= r.size()
		}
		r := next[k]
		bytes += r.size()
	}
	if !w.held.Set(bytes) {
		if !w.held.Possible(bytes) {
			return connect.NewError(connect.CodeResourceExhausted, errors.New("what is written together is larger than the server can hold for one request: write less at a time"))
		}
		return refusal.New(refusal.Busy, errNoRoom)
	}
	w.bytes = bytes
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
	recs, _, err := page(w, kind, prefix, after, limit,
		func(ask int) ([]record.Record, bool, error) {
			recs, err := j.Store.List(ctx, kind, prefix, after, ask)
			return recs, len(recs) == ask, err
		}, nameOfRecord, madeOf)
	return recs, err
}

func nameOfRecord(r record.Record) string { name, _ := r.Key.Name(); return name }

func madeOf(_ string, k joinedKey, doc []byte) record.Record {
	return record.Record{Kind: k.kind, Key: k.key, Doc: doc}
}

// joinedBounded is one over a store whose lists can be bounded in bytes.
type joinedBounded struct {
	joined  *joinedStore
	bounded BoundedStore
}

// ListBounded is List that ends with the record that reaches so many bytes.
func (j joinedBounded) ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) (recs []record.Record, more bool, err error) {
	w := j.joined.of(ctx)
	if w == nil || len(w.order) == 0 {
		return j.bounded.ListBounded(ctx, kind, prefix, after, limit, bytes)
	}
	if limit <= 0 {
		limit = defaultList
	}
	for {
		last := "" // of the stored ones
		recs, more, err = page(w, kind, prefix, after, limit, func(ask int) (stored []record.Record, more bool, err error) {
			if stored, more, err = j.bounded.ListBounded(ctx, kind, prefix, after, ask, bytes); len(stored) > 0 {
				last = nameOfRecord(stored[len(stored)-1])
			}
			return stored, more, err
		}, nameOfRecord, madeOf)
		if err != nil {
			return nil, false, err
		}
		size := 0
		for i, r := range recs {
			if size += len(r.Doc); bytes > 0 && size >= bytes && i+1 < len(recs) {
				return recs[:i+1], true, nil
			}
		}
		if len(recs) > 0 || !more || last == "" {
			return recs, more || len(recs) == limit, nil
		}
		after = last // all that was stored there is deleted
	}
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
	names, _, err := page(w, kind, prefix, after, limit,
		func(ask int) ([]string, bool, error) {
			names, err := j.batch.ListNames(ctx, kind, prefix, after, ask)
			return names, len(names) == ask, err
		},
		func(name string) string { return name },
		func(name string, _ joinedKey, _ []byte) string { return name })
	return names, err
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

// page is what a list returns with what was written, and whether there may be more. stored returns so
// many of what is stored, or fewer, and whether there may be more of them.
func page[T any](w *joinedWrite, kind, prefix, after string, limit int, stored func(ask int) ([]T, bool, error), nameOf func(T) string, made func(name string, k joinedKey, doc []byte) T) (items []T, more bool, err error) {
	if limit <= 0 {
		limit = defaultList
	}
	// So many more, that there are enough when those are left out that were changed.
	if items, more, err = stored(limit + len(w.order)); err != nil {
		return nil, false, err
	}
	last := "" // how far the stored ones go; empty: to the end
	if more && len(items) > 0 {
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
	if len(items) > limit {
		return items[:limit], true, nil
	}
	return items, more, nil
}
