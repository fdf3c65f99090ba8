package adapt

import (
	"context"
	"errors"

	"dbcontroller.dev/record"
)

// firstRecords is the number of records that a bounded list reads first while their size is
// unknown.
const firstRecords = 64

// ListBounded is List with a limit of bytes: it ends with the record that reaches the limit. more
// reports that the list reached either limit. A group is shown as a whole, so ListBounded reads as
// many records at a time as probably fit.
func (a *Adapter) ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) (recs []record.Record, more bool, err error) {
	if limit <= 0 {
		limit = fullPage
	}
	known, size := a.sizes[kind], 0
	if known == nil {
		return nil, false, a.noSource(kind)
	}
	keep := keeper(ctx)
	for most := limit; ; {
		n := firstRecords
		// Estimate by the records of this list, or else by the last list of the kind.
		if size > 0 {
			n = (bytes - size) * len(recs) / size
		} else if average := int(known.Load()); average > 0 {
			n = bytes / average
		}
		// At least one record, or a record larger than the limit would stop the list.
		n = min(max(n, 1), limit-len(recs), most)
		next, err := a.List(ctx, kind, prefix, after, n)
		switch {
		case errors.Is(err, record.ErrTooLarge) && n > 1:
			// The stored records of these groups do not fit in memory at once. Ask for fewer.
			keep(recs)
			most = n / 2
			continue
		// Not even one more group fits next to the records so far. The next page begins with it.
		case errors.Is(err, record.ErrTooLarge) && len(recs) > 0:
			return recs, true, nil
		case err != nil:
			return nil, false, err
		}
		for _, rec := range next {
			size += len(rec.Doc)
			after, _ = rec.Key.Name()
		}
		recs = append(recs, next...)
		if len(recs) > 0 {
			// Not zero, which means unknown.
			known.Store(int64(max(size/len(recs), 1)))
		}
		switch {
		// Fewer than asked: the list is complete.
		case len(next) < n:
			return recs, false, nil
		case len(recs) == limit || size >= bytes:
			return recs, true, nil
		}
	}
}
