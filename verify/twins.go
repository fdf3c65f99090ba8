package verify

import (
	"context"
	"fmt"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// twins compares a page of a source kind with the same stretch of its twin. Both are scanned
// in the order of their keys, which costs a database less than to look up as many keys, and
// whatever the target alone holds lies in between. The stretches of a range adjoin, before
// its first record and behind its last one too, so that none of the target's is left out.
func (c *Comparer) twins(ctx context.Context, src, dst transform.View, kind string, r record.Range, limit int) (transform.Comparison, error) {
	page, err := c.source.Scan(ctx, record.ScanRequest{Token: src.Tokens[kind], Range: r, Limit: limit, NotBefore: src.NotBefore})
	if err != nil {
		return transform.Comparison{}, fmt.Errorf("scan source %s: %w", kind, err)
	}
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
		out.Next.From = held.Next // what the source has beyond it is read again
	}
	resolver := c.resolver(src, dst)
	compare := func(have, holds []record.Record) {
		groupOf, at := c.dir.GroupOf, have
		if len(have) == 0 {
			groupOf, at = c.dir.GroupOfTarget, holds
		}
		id, _, err := groupOf(at[0].Kind, at[0].Key)
		if err != nil {
			for _, h := range holds { // what the source has is parked where it is copied
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
		if order <= 0 && !held.Done && record.Cursor(a[0].Key).Compare(held.Next) >= 0 {
			break
		}
		n, m := min(1, 1-order), min(1, 1+order)
		compare(a[:n:n], b[:m:m])
		a, b = a[n:], b[m:]
	}
	return out, nil
}
