package verify

import (
	"context"
	"fmt"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Comparer compares groups of one direction. Its methods may be called concurrently.
type Comparer struct {
	source, target record.Reader
	dir            transform.Direction
	sizes, keys    *transform.Sizer // of reads of groups, and of their keys
}

// New compares source with target through dir.
func New(source, target record.Reader, dir transform.Direction) *Comparer {
	return &Comparer{source: source, target: target, dir: dir, sizes: &transform.Sizer{}, keys: &transform.Sizer{}}
}

// Groups returns those of ids whose two sides differ as read now. A group that cannot be
// transformed differs.
func (c *Comparer) Groups(ctx context.Context, src, dst transform.View, ids []transform.GroupID) ([]transform.Difference, error) {
	return c.differing(ctx, src, dst, ids, false)
}

// against compares groups that were read from the source, as of one snapshot, with what the
// target holds.
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

// SourcePage compares the groups that a page of a source kind belongs to. Where the kind has a
// twin it finds what the target alone holds there, too.
func (c *Comparer) SourcePage(ctx context.Context, src, dst transform.View, kind string, r record.Range, limit int) (transform.Comparison, error) {
	if _, known := dst.Tokens[c.dir.Twin(kind)]; known {
		return c.twins(ctx, src, dst, kind, r, limit)
	}
	whole := c.dir.Whole(kind)
	page, err := c.source.Scan(ctx, record.ScanRequest{Token: src.Tokens[kind], Range: r, Limit: limit, KeysOnly: !whole, NotBefore: src.NotBefore})
	if err != nil {
		return transform.Comparison{}, fmt.Errorf("scan source %s: %w", kind, err)
	}
	ids, groups := c.groups(page, c.dir.GroupOf)
	out := transform.Comparison{Compared: len(ids), Scanned: len(page.Records), Next: record.Range{From: page.Next, To: r.To}, Done: page.Done}
	if len(ids) == 0 {
		return out, nil
	}
	if whole {
		out.Differ, err = c.against(ctx, dst, ids, page.Version, groups)
	} else {
		var differ []transform.Difference
		differ, err = c.Groups(ctx, src.AtLeast(page.Version), dst, ids)
		out.Differ = transform.Names(differ)
	}
	return out, err
}

// TargetPage finds, on a page of a target kind, groups that the source does not have. Those
// that it has are compared by SourcePage, with all that the target holds of them, so that
// only both together compare everything. Of groups by content, whose records do not show by
// their keys what they were made of, each is compared here too.
func (c *Comparer) TargetPage(ctx context.Context, src, dst transform.View, kind string, r record.Range, limit int) (transform.Comparison, error) {
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
		// The versions of the two sides are not comparable, so that the source is read as
		// it is now; what was deleted since agrees when it is compared again.
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

// strays returns those of ids, which are groups by name, that the source holds nothing of.
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

// groups returns the groups of a page, each once. Keys without a group are left out: those
// of the source are parked where they are copied, those of the target are orphans.
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
