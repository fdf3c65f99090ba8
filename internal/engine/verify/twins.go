package verify

import (
	"context"
	"fmt"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// twins compares a page of a source kind with the same key range of its twin. It scans both in key
// order, which costs a database less than looking up as many keys. The scan also shows every record
// that only the target holds. The ranges of consecutive pages adjoin, from before the first record
// to behind the last one, so no target record is left out.
func (c *Comparer) twins(ctx context.Context, src, dst transform.View, kind string, r record.Range, limit int) (transform.Comparison, error) {
	page, err := c.source.Scan(ctx, record.ScanRequest{Token: src.Tokens[kind], Range: r, Limit: limit, NotBefore: src.NotBefore})
	if err != nil {
		return transform.Comparison{}, fmt.Errorf("scan source %s: %w", kind, err)
	}
	// The range ends where the next source page begins, not at the last record of this one.
	end := r.To
	if !page.Done {
		end = page.Next
	}
	twin := c.dir.Twin(kind)
	held, err := c.target.Scan(ctx, record.ScanRequest{
		Token: dst.Tokens[twin], Range: record.Range{From: r.From, To: end}, Limit: 2 * limit, NotBefore: dst.NotBefore,
	})
	if err != nil {
		return transform.Comparison{}, fmt.Errorf("scan target %s: %w", twin, err)
	}
	out := transform.Comparison{Scanned: len(page.Records) + len(held.Records), Next: record.Range{From: end, To: r.To}, Done: page.Done && held.Done}
	if !held.Done {
		out.Next.From = held.Next // the next call reads the source beyond it again
	}
	resolver := c.resolver(src, dst)
	compare := func(have, holds []record.Record) {
		groupOf, at := c.dir.GroupOf, have
		// Without a source record the target's key names the group.
		if len(have) == 0 {
			groupOf, at = c.dir.GroupOfTarget, holds
		}
		id, _, err := groupOf(at[0].Kind, at[0].Key)
		if err != nil {
			for _, h := range holds { // the copy parks the source's record
				out.Orphans = append(out.Orphans, transform.Orphan{Kind: twin, Key: h.Key, Err: err})
			}
			return
		}
		out.Compared += len(have)
		group := func(rs []record.Record) func(int) transform.Group {
			return func(int) transform.Group { return transform.Group{Name: id.Name, Records: rs} }
		}
		for _, comp := range resolver.Both([]transform.GroupID{id}, page.Version, group(have), group(holds)) {
			out.Differ = append(out.Differ, comp.Differ()...)
		}
	}
	a, b := page.Records, held.Records
	// Merge both sides by key. n and m say which sides have a record at the lowest key.
	for len(a) > 0 || len(b) > 0 {
		order := -1
		switch {
		case len(a) == 0:
			order = 1
		case len(b) > 0 && a[0].Key == b[0].Key:
			order = 0
		case len(b) > 0:
			order = record.Cursor(a[0].Key).Compare(record.Cursor(b[0].Key))
		}
		// The target's page ends here; later source records have no counterpart in it yet.
		if order <= 0 && !held.Done && record.Cursor(a[0].Key).Compare(held.Next) >= 0 {
			break
		}
		n, m := min(1, 1-order), min(1, 1+order)
		compare(a[:n:n], b[:m:m])
		a, b = a[n:], b[m:]
	}
	return out, nil
}
