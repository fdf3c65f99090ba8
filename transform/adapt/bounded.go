package adapt

import (
	"context"
	"errors"

	"dbcontroller.dev/record"
)

// firstRecords is how many records a bounded list begins with as long as nothing is known of their
// size.
const firstRecords = 64

// ListBounded is List that ends with the record that reaches so many bytes. more reports that it
// did, or that limit did. A group is shown as a whole, so that records are read in pieces of as many
// as probably fit.
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
		if size > 0 {
			n = (bytes - size) * len(recs) / size
		} else if average := int(known.Load()); average > 0 {
			n = bytes / average
		}
		n = min(max(n, 1), limit-len(recs), most)
		next, err := a.List(ctx, kind, prefix, after, n)
		switch {
		case errors.Is(err, record.ErrTooLarge) && n > 1:
			keep(recs)
			most = n / 2
			continue
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
			known.Store(int64(max(size/len(recs), 1)))
		}
		switch {
		case len(next) < n:
			return recs, false, nil
		case len(recs) == limit || size >= bytes:
			return recs, true, nil
		}
	}
}
