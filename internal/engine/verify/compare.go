package verify

import (
	"context"
	"fmt"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Comparer compares the groups of one direction. Its methods may be called concurrently.
type Comparer struct {
	source, target record.Reader
	dir            transform.Direction
	sizes, keys    *transform.Sizer // read sizes for groups, and for their keys
}

// New returns a Comparer for source and target through dir.
func New(source, target record.Reader, dir transform.Direction) *Comparer {
	return &Comparer{source: source, target: target, dir: dir, sizes: &transform.Sizer{}, keys: &transform.Sizer{}}
}

// Groups returns the groups of ids whose two sides differ as read now. A group that cannot be
// transformed differs.
func (c *Comparer) Groups(ctx context.Context, src, dst transform.View, ids []transform.GroupID) ([]transform.Difference, error) {
	return c.differing(ctx, src, dst, ids, false)
}

// against compares source groups, read at one snapshot, with the target.
func (c *Comparer) against(ctx context.Context, dst transform.View, ids []transform.GroupID, at record.Version, source map[transform.GroupID]transform.Group) ([]transform.GroupID, error) {
	var differ []transform.GroupID
	err := transform.Each(c.sizes, ids, func(run []transform.GroupID, bytes int) error {
		cs, err := c.resolver(transform.View{}, dst.Within(bytes)).Given(ctx, run, at, func(i int) transform.Group { return source[run[i]] })
		for i := range cs {
			differ = append(differ, cs[i].Differ()...)
		}
		return err
	})
	return differ, err
}

// SourcePage compares the groups of one page of a source kind. For a kind with a twin it also finds
// the records that only the target holds in that range. A twin is a target kind with the same keys,
// each record made from that one source record.
func (c *Comparer) SourcePage(ctx context.Context, src, dst transform.View, kind string, r record.Range, limit int) (transform.Comparison, error) {
	if _, known := dst.Tokens[c.dir.Twin(kind)]; known {
		return c.twins(ctx, src, dst, kind, r, limit)
	}
	whole := c.dir.Whole(kind)
	// Where a record is not the whole group, its content is read again with the group.
	page, err := c.source.Scan(ctx, record.ScanRequest{Token: src.Tokens[kind], Range: r, Limit: limit, KeysOnly: !whole, NotBefore: src.NotBefore})
	if err != nil {
		return transform.Comparison{}, fmt.Errorf("scan source %s: %w", kind, err)
	}
	ids, groups := c.groups(page, c.dir.GroupOf)
	out := transform.Comparison{Compared: len(ids), Scanned: len(page.Records), Next: record.Range{From: page.Next, To: r.To}, Done: page.Done}
	if len(ids) == 0 {
		return out, nil
	}
	// A whole record is its group, so the page itself is the source's side.
	if whole {
		out.Differ, err = c.against(ctx, dst, ids, page.Version, groups)
	} else {
		var differ []transform.Difference
		differ, err = c.Groups(ctx, src.AtLeast(page.Version), dst, ids)
		out.Differ = transform.Names(differ)
	}
	return out, err
}

// TargetPage finds, on one page of a target kind, the groups that the source lacks. SourcePage
// compares the other groups, with all of their target records, so a complete comparison needs both.
// TargetPage also compares each group by content, because the keys of its records do not show their
// source.
func (c *Comparer) TargetPage(ctx context.Context, src, dst transform.View, kind string, r record.Range, limit int) (transform.Comparison, error) {
	// Keys are enough: they show which groups the source lacks.
	page, err := c.target.Scan(ctx, record.ScanRequest{Token: dst.Tokens[kind], Range: r, Limit: limit, KeysOnly: true, NotBefore: dst.NotBefore})
	if err != nil {
		return transform.Comparison{}, fmt.Errorf("scan target %s: %w", kind, err)
	}
	ids, _ := c.groups(page, c.dir.GroupOfTarget)
	out := transform.Comparison{Compared: len(ids), Scanned: len(page.Records), Next: record.Range{From: page.Next, To: r.To}, Done: page.Done}
	for _, rec := range page.Records {
		if _, ok, err := c.dir.GroupOfTarget(rec.Kind, rec.Key); ok && err != nil && !rec.Tombstone {
			out.Orphans = append(out.Orphans, transform.Orphan{Kind: rec.Kind, Key: rec.Key, Err: err})
		}
	}
	if len(ids) > 0 {
		// Versions of the two sides are not comparable, so read the source's present state. A
		// record deleted in between agrees when it is compared again.
		named, units := transform.Split(c.dir, ids)
		strays, err := c.strays(ctx, src, named)
		if err != nil {
			return transform.Comparison{}, err
		}
		differ, err := c.differing(ctx, src, dst.AtLeast(page.Version), append(strays, units...), true)
		if err != nil {
			return transform.Comparison{}, err
		}
		out.Differ = transform.Names(differ)
	}
	return out, nil
}

// strays returns the groups by name of ids without any source record.
func (c *Comparer) strays(ctx context.Context, src transform.View, ids []transform.GroupID) (strays []transform.GroupID, err error) {
	err = transform.Each(c.keys, ids, func(run []transform.GroupID, bytes int) error {
		there, err := transform.ReadKeys(ctx, c.source, c.dir, src.Within(bytes), run)
		for _, id := range run {
			if !there[id] {
				strays = append(strays, id)
			}
		}
		return err
	})
	return strays, err
}

// groups returns the groups of a page, each once. It skips keys without a group: the copy parks
// such records of the source, and such records of the target are orphans.
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
