package vrunner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
)

// joinAttempts bounds the runs of calls that write together.
const joinAttempts = 10

// Join returns a store whose writes can be combined, and a function that combines them. Calls in do
// write to the joined store with the context of do, or one derived from it. Once do returns nil,
// together makes all these writes with one Write of the store below. If it returns an error,
// nothing is written, unless the store reports an unknown outcome.
//
// Inside do, reads see the writes made so far. Others see them only after together returns. The
// store checks the conditions of each write immediately. At the end it compares every written
// record, as a whole, with the state before. If others have changed one, do runs again from its
// beginning, at most ten times. Records that were only read are not compared. Subscriptions report
// the writes at the end. Calls must write one after the other.
//
// Join is for a request that several calls serve (apiversion.Options.Together). After a fence the
// server can run such a request again as a whole, since none of it was written.
func Join(store Store) (joined Store, together func(ctx context.Context, do func(ctx context.Context) error) error) {
	j := &joinedStore{Store: store}
	together = func(ctx context.Context, do func(context.Context) error) error {
		if j.of(ctx) != nil {
			return do(ctx) // the outer call writes
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

// try runs do once and commits its writes. again reports that others have changed a written record.
func (j *joinedStore) try(ctx context.Context, do func(context.Context) error) (again bool, err error) {
	w := &joinedWrite{records: map[joinedKey]*joinedRecord{}, held: memory.Of(ctx).Hold()}
	defer w.held.Set(0)
	if err := do(context.WithValue(ctx, j, w)); err != nil {
		return false, err
	}
	err = j.commit(ctx, w)
	return raced(err), err
}

// raced reports that a written record changed between the read and the commit.
func raced(err error) bool {
	return errors.Is(err, record.ErrMismatch) || errors.Is(err, record.ErrExists) || errors.Is(err, record.ErrNotFound)
}

// joinedStore is a Store. Its address is the context key of a combined write.
type joinedStore struct{ Store }

// joinedWrite holds the writes of one run, in order.
type joinedWrite struct {
	records map[joinedKey]*joinedRecord
	order   []joinedKey
	bytes   int64 // total size of the documents
	held    *memory.Held
}

type joinedKey struct {
	kind string
	key  record.Key
}

// joinedRecord is a record before and after the run. A nil document means that there is no record.
type joinedRecord struct{ before, after []byte }

func (r *joinedRecord) size() int64 { return int64(len(r.before) + len(r.after)) }

// of returns the combined write of a context. It is nil outside of together.
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
			continue // created and deleted again, or a deletion of nothing
		// The condition makes the commit fail if others have changed the record since its read.
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

// Write remembers the mutations, all or none, if their conditions hold.
func (j *joinedStore) Write(ctx context.Context, ms []record.Mutation) error {
	w := j.of(ctx)
	if w == nil {
		return j.Store.Write(ctx, ms)
	}
	// next is a draft: a mutation that fails its condition must leave w unchanged.
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
	// Memory is taken before w changes, so that a refused write has no effect.
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
		return refusal.New(refusal.Busy, memory.ErrNoRoom)
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

// written returns a record as the calls so far have left it.
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

// holds returns the error of a condition that the document does not meet.
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
	// Without writes the stored list is the answer.
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

// joinedBounded adds ListBounded over a store that has it.
type joinedBounded struct {
	joined  *joinedStore
	bounded BoundedStore
}

// ListBounded is List that ends with the record that reaches that many bytes.
func (j joinedBounded) ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) (recs []record.Record, more bool, err error) {
	w := j.joined.of(ctx)
	if w == nil || len(w.order) == 0 {
		return j.bounded.ListBounded(ctx, kind, prefix, after, limit, bytes)
	}
	if limit <= 0 {
		limit = defaultList
	}
	for {
		last := "" // name of the last stored record
		recs, more, err = page(w, kind, prefix, after, limit, func(ask int) (stored []record.Record, more bool, err error) {
			if stored, more, err = j.bounded.ListBounded(ctx, kind, prefix, after, ask, bytes); len(stored) > 0 {
				last = nameOfRecord(stored[len(stored)-1])
			}
			return stored, more, err
		}, nameOfRecord, madeOf)
		if err != nil {
			return nil, false, err
		}
		// Written records can be larger than stored ones, so the limit is applied again.
		size := 0
		for i, r := range recs {
			if size += len(r.Doc); bytes > 0 && size >= bytes && i+1 < len(recs) {
				return recs[:i+1], true, nil
			}
		}
		if len(recs) > 0 || !more || last == "" {
			return recs, more || len(recs) == limit, nil
		}
		after = last // calls have deleted all records of this page
	}
}

// joinedBatch is a joinedStore over a store that reads several records at once.
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
	// The stored version of a written record is outdated, or deleted.
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

// page merges a list of the store with the writes so far. more reports that there may be more.
// stored returns up to ask stored items and whether there may be more of them.
func page[T any](w *joinedWrite, kind, prefix, after string, limit int, stored func(ask int) ([]T, bool, error), nameOf func(T) string, made func(name string, k joinedKey, doc []byte) T) (items []T, more bool, err error) {
	if limit <= 0 {
		limit = defaultList
	}
	// Ask for one more item for each written record, so that enough remain when those are removed.
	if items, more, err = stored(limit + len(w.order)); err != nil {
		return nil, false, err
	}
	last := "" // name of the last stored item; empty: the list is complete
	if more && len(items) > 0 {
		last = nameOf(items[len(items)-1])
	}
	items = slices.DeleteFunc(items, func(i T) bool { return w.records[joinedKey{kind, record.StringKey(nameOf(i))}] != nil })
	// A written record past last belongs to a later page: stored ones may come before it.
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
