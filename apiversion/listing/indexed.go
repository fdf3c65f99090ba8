package listing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

const (
	// maxEquals limits the values of a comparison that an index serves. Each value costs one read.
	maxEquals = 16
	// maxEqual limits the records that an index finds for a comparison and that List then sorts by
	// another field. Above it, an index on the sorted field is cheaper.
	maxEqual = 1000
	// mergeBytes limits the records that List reads at a time for all values of a comparison.
	mergeBytes = 8 << 20
)

// Index reads records of type R by the values of declared fields, in the form in which protodoc
// stores them. The zero Index declares no field.
type Index[R any] struct {
	// Has reports whether a field is declared. Nil means that none is.
	Has func(path string) bool
	// List reads records by the index of a declared field. The request has no Token. It may leave
	// out records that must not be listed. If it returns record.ErrNoIndex, the page is made
	// without the index.
	List func(ctx context.Context, req record.IndexRequest) (IndexPage[R], error)
}

// IndexPage is a record.IndexPage of records of type R. The fields have the same meaning.
type IndexPage[R any] struct {
	Records  []R
	Values   []bson.RawValue
	Done     bool
	Last     bson.RawValue
	LastName string
	Looked   int
}

// indexed makes a page by an index. It returns record.ErrNoIndex if no index serves the request, or
// if the stored values do not allow it.
func indexed[R any, M proto.Message](ctx context.Context, q query, src Source[R, M], d protoreflect.MessageDescriptor) (Page[M], error) {
	if src.Index.Has == nil {
		return Page[M]{}, record.ErrNoIndex
	}
	x := lookup[R, M]{src: src, d: d}
	equal, found := x.equal(q.filter)
	if found && q.byName {
		return x.page(ctx, q, equal, streamed[R, M])
	}
	// Two ways remain: sort the records of the comparison, or read the order's index and filter. A
	// small comparison is cheaper, so try it first if both are possible.
	ordered := len(q.order) == 1 && x.src.Index.Has(q.order[0].Path)
	if found {
		if ordered {
			equal.most = maxEqual
		}
		page, err := x.page(ctx, q, equal, sorted[R, M])
		// Too many to sort: fall through to the order's index.
		if !ordered || !errors.Is(err, errMany) {
			return page, err
		}
	}
	if ordered {
		return x.ordered(ctx, q)
	}
	return Page[M]{}, record.ErrNoIndex
}

// lookup reads records by the indexes of a source.
type lookup[R any, M proto.Message] struct {
	src Source[R, M]
	d   protoreflect.MessageDescriptor
}

// equals describes the records in which a field has one of some values.
type equals struct {
	path   string
	forms  forms
	values []bson.RawValue
	most   int // limit of records; 0 means none
}

// errMany means that a comparison finds more records than equals.most.
var errMany = errors.New("too many records")

// equal returns a comparison that every matching record meets and that an index serves.
func (x lookup[R, M]) equal(f Filter) (equals, bool) {
	// Only a part of a conjunction narrows the search: each match must meet it.
	all := f.And
	if len(all) == 0 {
		all = []Filter{f}
	}
	for _, f := range all {
		// References also match by other names, which the index does not know.
		c := f.Condition
		if c == nil || f.field == nil || f.field.others != nil || c.Op != transform.OpEqual && c.Op != transform.OpIn || len(c.Values) > maxEquals || !x.src.Index.Has(c.Path) {
			continue
		}
		e := equals{path: c.Path}
		var ok bool
		e.forms, ok = f.field.formsOf(x.d)
		for _, v := range c.Values {
			// NaN equals nothing in a filter, but the index would find it.
			values, known := e.forms.equal(v)
			if ok = ok && known && !isNaN(v); ok {
				e.values = append(e.values, values...)
			}
		}
		if ok {
			// One stored value may stand for two filter values. Read it once.
			slices.SortFunc(e.values, record.CompareValues)
			e.values = slices.CompactFunc(e.values, func(a, b bson.RawValue) bool { return record.CompareValues(a, b) == 0 })
			return e, true
		}
	}
	return equals{}, false
}

// page makes a page of the records of a comparison. with sorts and filters them.
func (x lookup[R, M]) page(ctx context.Context, q query, e equals, with func(context.Context, query, Source[R, M]) (Page[M], error)) (Page[M], error) {
	if err := x.none(ctx, e.path, e.forms, false); err != nil {
		return Page[M]{}, err
	}
	src, had := x.src, 0
	src.Fetch = func(ctx context.Context, after string, limit int) ([]R, error) {
		recs, err := x.merged(ctx, record.IndexRequest{Field: e.path, After: after, Limit: limit}, e.values)
		// Count over all calls: with fetches several times.
		if had += len(recs); err == nil && e.most > 0 && had > e.most {
			return nil, errMany
		}
		return recs, err
	}
	return with(ctx, q, src)
}

// none returns record.ErrNoIndex if the collection holds values that the index cannot serve.
func (x lookup[R, M]) none(ctx context.Context, path string, f forms, ordered bool) error {
	odd, possible := f.odd(ordered)
	if !possible {
		return nil
	}
	page, err := x.src.Index.List(ctx, record.IndexRequest{Field: path, Above: odd.above, Limit: 1})
	// Done without records proves that there is none.
	if err == nil && (!page.Done || len(page.Records) > 0) {
		err = record.ErrNoIndex
	}
	return err
}

// merged returns the records in which a field has one of the values, in name order. It acts as a
// Source.Fetch.
func (x lookup[R, M]) merged(ctx context.Context, req record.IndexRequest, values []bson.RawValue) ([]R, error) {
	type named struct {
		name string
		rec  R
	}
	// Each round drops the records of the previous one, so reset the memory count to its start.
	read := memory.ReadsOf(ctx)
	held := read.Held()
	// All values share the bytes of one fetch.
	req.Bytes = mergeBytes / max(1, len(values))
	for ; ; read.Keep(held) {
		var all []named
		end, more := "", false // names after end may be incomplete
		for _, v := range values {
			req.Equal = v
			page, err := x.src.Index.List(ctx, req)
			// The records of all values do not fit in memory together. A scan holds fewer at a time.
			if errors.Is(err, record.ErrTooLarge) && !errors.Is(err, memory.ErrNoRoom) && len(values) > 1 {
				return nil, fmt.Errorf("%s has too large records: %w", req.Field, record.ErrNoIndex)
			}
			if err != nil {
				return nil, err
			}
			for _, r := range page.Records {
				name, err := x.src.Name(r)
				if err != nil {
					return nil, err
				}
				all = append(all, named{name, r})
			}
			// The value whose page ends first limits the merge: it may have more records right
			// after.
			if !page.Done && (!more || page.LastName < end) {
				end, more = page.LastName, true
			}
		}
		slices.SortFunc(all, func(a, b named) int { return strings.Compare(a.name, b.name) })
		// A record that changed between two reads can appear under both values.
		all = slices.CompactFunc(all, func(a, b named) bool { return a.name == b.name })
		// Records after end could follow records that were not read yet.
		for more && len(all) > 0 && all[len(all)-1].name > end {
			all = all[:len(all)-1]
		}
		if len(all) > req.Limit {
			all, more = all[:req.Limit], true
		}
		// An empty result would mean the end of the list, so read on.
		if len(all) == 0 && more {
			req.After = end
			continue
		}
		recs := make([]R, len(all))
		for i, n := range all {
			recs[i] = n.rec
		}
		if more && len(recs) < req.Limit {
			// Fewer than the limit would mean the end of the list.
			return recs, ErrMore
		}
		return recs, nil
	}
}

// leg is a part of an order that is still to be read: the records of some values with names after a
// name, or a range of values.
type leg struct {
	segment
	after string
}

// legs returns the legs after a place in an order, given by value and name. The zero RawValue is
// the beginning. ok is false if no segment has the value.
func legs(segments []segment, desc bool, at bson.RawValue, name string) ([]leg, bool) {
	segments = slices.Clone(segments)
	if desc {
		slices.Reverse(segments)
	}
	if at.Type == 0 {
		var out []leg
		for _, s := range segments {
			out = append(out, leg{segment: s})
		}
		return out, true
	}
	i := slices.IndexFunc(segments, func(s segment) bool { return s.has(at) })
	if i < 0 {
		return nil, false
	}
	out := []leg{{segment: segments[i], after: name}}
	if segments[i].points == nil {
		out = behind(segments[i], desc, at, name)
	}
	for _, s := range segments[i+1:] {
		out = append(out, leg{segment: s})
	}
	return out, true
}

// behind returns the legs of a range after a place in it: the records of the same value with later
// names, then the rest of the range.
func behind(s segment, desc bool, at bson.RawValue, name string) []leg {
	rest := segment{above: at, below: s.below}
	if desc {
		rest = segment{above: s.above, below: at}
	}
	return []leg{{segment: segment{points: []bson.RawValue{at}}, after: name}, {segment: rest}}
}

// ordered makes a page of an order by a declared field. It reads the records of the page and those
// that the filter drops, from at most 10,000 index entries.
func (x lookup[R, M]) ordered(ctx context.Context, q query) (page Page[M], err error) {
	by := q.order[0]
	f, ok := by.field.formsOf(x.d)
	if !ok {
		return page, record.ErrNoIndex
	}
	segments, ok := f.order()
	if !ok {
		return page, record.ErrNoIndex
	}
	if err := x.none(ctx, by.Path, f, true); err != nil {
		return page, err
	}
	var at bson.RawValue
	var last entry[M] // last record that was looked at
	started := q.after != nil
	if started {
		values, ok := f.equal(q.after.Values[0])
		if !ok {
			return page, record.ErrNoIndex
		}
		at, last = values[0], entry[M]{name: q.after.Name, values: q.after.Values}
	}
	todo, ok := legs(segments, by.Desc, at, last.name)
	if !ok {
		return page, record.ErrNoIndex
	}
	bytes := 0
	for looked := 0; len(todo) > 0; {
		// The records of the previous step are no longer needed.
		memory.ReadsOf(ctx).Keep(int64(page.bytes))
		recs, next, n, err := x.step(ctx, by, todo, q)
		if err != nil {
			return page, err
		}
		for _, r := range recs {
			e, err := x.entry(ctx, q, r)
			// The record must not be listed, or was deleted meanwhile.
			if errors.Is(err, ErrGone) {
				continue
			}
			if err != nil {
				return page, err
			}
			// Records must come in strictly rising order, or a page token would skip some. The
			// order breaks if a record changed after the index was read, or if the index sorts a
			// value differently.
			if started {
				switch c := compareEntries(q.order, last, e); {
				// A step repeats the record at its place.
				case c == 0:
					continue
				case c > 0:
					return page, record.ErrNoIndex
				}
			}
			if q.filter.Eval(e.msg) {
				// This record proves that there is a next page.
				if len(page.Items) == q.size {
					page.NextPageToken = q.token(last.name, last.values)
					return page, nil
				}
				full, err := page.add(e.msg, q.mask)
				if err != nil {
					return page, err
				}
				if full {
					page.NextPageToken = q.token(last.name, last.values)
					return page, nil
				}
			}
			last, started = e, true
		}
		todo = next
		// Stop only where a token can resume. The beginning of a range has no value and name.
		looked, bytes = looked+n, bytes+x.src.sizeOf(recs)
		if (looked >= maxScan || bytes >= maxScanBytes) && len(todo) > 0 && todo[0].points != nil {
			values, err := x.valuesOf(by, todo[0].points[0])
			if err != nil {
				return page, err
			}
			page.NextPageToken = q.token(todo[0].after, values)
			return page, nil
		}
	}
	return page, nil
}

// entry reads a record and its place in the order.
func (x lookup[R, M]) entry(ctx context.Context, q query, r R) (e entry[M], err error) {
	if e.name, err = x.src.Name(r); err != nil {
		return e, err
	}
	if e.msg, err = x.src.Message(ctx, r); err != nil {
		return e, err
	}
	e.values = q.order.Values(e.msg)
	return e, nil
}

// step reads the next records of an order and returns the legs that remain. looked is the number of
// index entries read.
func (x lookup[R, M]) step(ctx context.Context, by OrderField, todo []leg, q query) (recs []R, rest []leg, looked int, err error) {
	first, rest := todo[0], todo[1:]
	limit := q.size + 1 // one more shows whether there is a next page
	if !q.filter.IsZero() {
		// The filter may drop any number of records, so a page's size says nothing.
		limit = batch
	}
	if first.points != nil {
		recs, err = x.merged(ctx, record.IndexRequest{Field: by.Path, After: first.after, Limit: limit}, first.points)
		if more := errors.Is(err, ErrMore); more || err == nil && len(recs) == limit {
			// The leg goes on after the last record of this step.
			if first.after, err = x.src.Name(recs[len(recs)-1]); err != nil {
				return nil, nil, 0, err
			}
			rest = append([]leg{first}, rest...)
		}
		return recs, rest, len(recs), err
	}
	page, err := x.src.Index.List(ctx, record.IndexRequest{Field: by.Path, Above: first.above, Below: first.below, Reverse: by.Desc, Limit: limit})
	if err != nil {
		return nil, nil, 0, err
	}
	recs = page.Records
	if by.Desc {
		// Within one value, names rise even if values descend. The page may not have all records of
		// its last value, so the next leg reads them from the start.
		recs, page.LastName = regrouped(page), ""
	}
	if !page.Done {
		rest = append(behind(first.segment, by.Desc, page.Last, page.LastName), rest...)
	}
	return recs, rest, page.Looked, nil
}

// regrouped sorts the records of each value of a descending page by rising names. It drops those of
// the last value if the page may lack some of them.
func regrouped[R any](page IndexPage[R]) []R {
	var out []R
	for from := 0; from < len(page.Records); {
		to := from
		for to < len(page.Records) && record.CompareValues(page.Values[to], page.Values[from]) == 0 {
			to++
		}
		if page.Done || record.CompareValues(page.Values[from], page.Last) != 0 {
			group := slices.Clone(page.Records[from:to])
			slices.Reverse(group)
			out = append(out, group...)
		}
		from = to
	}
	return out
}

// valuesOf converts a stored value into sort values for a token.
func (x lookup[R, M]) valuesOf(by OrderField, v bson.RawValue) ([]any, error) {
	// Decode it as a document with only this field, so that it gets the form of any other record.
	var doc any = v
	for _, step := range slices.Backward(by.field.steps) {
		doc = bson.D{{Key: string(step.name), Value: doc}}
	}
	raw, err := bson.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	msg := dynamicpb.NewMessage(x.d)
	if err := protodoc.Unmarshal(raw, msg); err != nil {
		return nil, fmt.Errorf("list by %s: %w", by.Path, err)
	}
	return Order{by}.Values(msg), nil
}
