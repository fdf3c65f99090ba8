package verify

import (
	"bytes"
	"context"
	"fmt"

	"dbcontroller/record"
	"dbcontroller/transform"
)

// Comparer compares groups of one direction. Its methods may be called concurrently.
type Comparer struct {
	source, target record.Reader
	dir            transform.Direction
}

// New compares source with target through dir.
func New(source, target record.Reader, dir transform.Direction) *Comparer {
	return &Comparer{source: source, target: target, dir: dir}
}

// Groups returns those of ids whose two sides differ as read now, the source not older
// than notBefore. A group that cannot be transformed differs.
func (c *Comparer) Groups(ctx context.Context, src, dst record.Tokens, ids []transform.GroupID, notBefore record.Version) ([]transform.GroupID, error) {
	groups, units := c.split(ids)
	differ, err := c.units(ctx, src, dst, units, notBefore, false)
	if err != nil || len(groups) == 0 {
		return differ, err
	}
	want, _, err := transform.ReadSource(ctx, c.source, c.dir, src, groups, notBefore)
	if err != nil {
		return nil, err
	}
	more, err := c.against(ctx, dst, groups, want)
	return append(differ, more...), err
}

// against compares the groups read from the source with what the target holds.
func (c *Comparer) against(ctx context.Context, dst record.Tokens, ids []transform.GroupID, want map[transform.GroupID]transform.Group) ([]transform.GroupID, error) {
	have, err := transform.ReadTarget(ctx, c.target, c.dir, dst, ids)
	if err != nil {
		return nil, err
	}
	var differ []transform.GroupID
	for _, id := range ids {
		var out []record.Record
		if src := want[id]; len(src.Records) > 0 {
			if out, err = c.dir.Transform(id, src, have[id].Group); err != nil {
				differ = append(differ, id)
				continue
			}
		}
		if !same(out, have[id].Records) {
			differ = append(differ, id)
		}
	}
	return differ, nil
}

// same compares two sorted lists of records byte by byte.
func same(a, b []record.Record) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Kind != b[i].Kind || a[i].Key != b[i].Key || !bytes.Equal(a[i].Doc, b[i].Doc) {
			return false
		}
	}
	return true
}

// SourcePage compares the groups that a page of a source kind belongs to.
func (c *Comparer) SourcePage(ctx context.Context, src, dst record.Tokens, kind string, r record.Range, limit int) (transform.Comparison, error) {
	whole := c.dir.Whole(kind)
	page, err := c.source.Scan(ctx, record.ScanRequest{Token: src[kind], Range: r, Limit: limit, KeysOnly: !whole})
	if err != nil {
		return transform.Comparison{}, fmt.Errorf("scan source %s: %w", kind, err)
	}
	ids, groups := c.groups(page, c.dir.GroupOf)
	out := transform.Comparison{Compared: len(ids), Next: record.Range{From: page.Next, To: r.To}, Done: page.Done}
	if len(ids) == 0 {
		return out, nil
	}
	if whole {
		out.Differ, err = c.against(ctx, dst, ids, groups)
	} else {
		out.Differ, err = c.Groups(ctx, src, dst, ids, page.Version)
	}
	return out, err
}

// TargetPage compares the groups that a page of a target kind belongs to: a group that
// the source does not have differs.
func (c *Comparer) TargetPage(ctx context.Context, src, dst record.Tokens, kind string, r record.Range, limit int) (transform.Comparison, error) {
	page, err := c.target.Scan(ctx, record.ScanRequest{Token: dst[kind], Range: r, Limit: limit, KeysOnly: true})
	if err != nil {
		return transform.Comparison{}, fmt.Errorf("scan target %s: %w", kind, err)
	}
	ids, _ := c.groups(page, c.dir.GroupOfTarget)
	out := transform.Comparison{Compared: len(ids), Next: record.Range{From: page.Next, To: r.To}, Done: page.Done}
	for _, rec := range page.Records {
		if _, ok, err := c.dir.GroupOfTarget(rec.Kind, rec.Key); ok && err != nil && !rec.Tombstone {
			out.Strays = append(out.Strays, transform.Stray{Kind: rec.Kind, Key: rec.Key, Err: err})
		}
	}
	if len(ids) > 0 && c.byContent(ids[0]) { // a kind is part of one spec
		out.Differ, err = c.units(ctx, src, dst, ids, record.Version{}, true)
	} else if len(ids) > 0 {
		// The versions of the two sides are not comparable, so that the source is read as
		// it is now; what was deleted since settles when it is compared again.
		out.Differ, err = c.Groups(ctx, src, dst, ids, record.Version{})
	}
	return out, err
}

// groups returns the groups of a page, each once. Keys without a group are left out: those
// of the source are parked where they are copied, those of the target are strays.
func (c *Comparer) groups(page record.Page, groupOf func(string, record.Key) (transform.GroupID, bool, error)) ([]transform.GroupID, map[transform.GroupID]transform.Group) {
	ids := make([]transform.GroupID, 0, len(page.Records))
	groups := make(map[transform.GroupID]transform.Group, len(page.Records))
	for i, r := range page.Records {
		id, ok, err := groupOf(r.Kind, r.Key)
		if !ok || err != nil || r.Tombstone {
			continue
		}
		if _, seen := groups[id]; !seen {
			ids = append(ids, id)
			groups[id] = transform.Group{Name: id.Name, Records: page.Records[i : i+1 : i+1]}
		}
	}
	return ids, groups
}
