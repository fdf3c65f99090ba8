package adapt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// loads is how many groups one list reads at a time.
const loads = 8

// List returns records as the version shown has them, in the order of their names.
func (a *Adapter) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	if !transform.SyncsTo(a.show, kind) {
		return nil, a.noSource(kind)
	}
	if id, ok, err := a.show.GroupOfTarget(kind, record.StringKey("x")); ok && err == nil && a.show.LineageKind(id.Spec) != "" {
		return nil, a.byContent(kind)
	}
	if limit <= 0 {
		limit = fullPage
	}
	p := page{kind: kind, prefix: prefix, after: after, limit: limit}
	if id, ok := a.within(kind, prefix); ok {
		shown, err := a.shown(ctx, id)
		if err != nil {
			return nil, err
		}
		p.add(shown)
		return p.sorted(), nil
	}
	if lead := a.lead(kind); lead != "" && (a.cfg.Names[kind] == nil || a.cfg.Ordered[kind]) {
		return a.follow(ctx, lead, p)
	}
	return a.sort(ctx, p)
}

// page collects what a list returns.
type page struct {
	kind, prefix, after string
	limit               int
	recs                []record.Record
}

func (p *page) add(shown []record.Record) {
	for _, rec := range shown {
		if name, ok := rec.Key.Name(); ok && rec.Kind == p.kind && strings.HasPrefix(name, p.prefix) && (p.after == "" || name > p.after) {
			p.recs = append(p.recs, rec)
		}
	}
	if len(p.recs) > 2*p.limit+loads {
		p.recs = p.sorted() // the others are not of this page
	}
}

func (p *page) sorted() []record.Record {
	slices.SortFunc(p.recs, func(a, b record.Record) int {
		x, _ := a.Key.Name()
		y, _ := b.Key.Name()
		return strings.Compare(x, y)
	})
	return p.recs[:min(p.limit, len(p.recs))]
}

// probes stand for any name that begins with a prefix.
var probes = []string{"x", "0", "~", "a-b"}

// within returns the group that all records of a kind with a prefix are of, if its
// declaration ensures so: their names then begin with what selects the group's.
func (a *Adapter) within(kind, prefix string) (id transform.GroupID, ok bool) {
	for i, probe := range probes {
		of, known, err := a.show.GroupOfTarget(kind, record.StringKey(prefix+probe))
		if !known || err != nil || (i > 0 && of != id) {
			return id, false
		}
		id = of
	}
	for _, sel := range a.show.TargetSelect(id) {
		name, _ := sel.Key.Name()
		if sel.Kind == kind && sel.Prefix && name != "" && strings.HasPrefix(prefix, name) {
			return id, true
		}
	}
	return id, false
}

// lead returns the stored kind whose records, by the same names, are those shown.
func (a *Adapter) lead(kind string) string {
	if lead := a.cfg.Leads[kind]; lead != "" {
		return lead
	}
	lead := ""
	for _, probe := range probes {
		key := record.StringKey(probe)
		id, ok, err := a.show.GroupOfTarget(kind, key)
		if !ok || err != nil {
			return ""
		}
		if !slices.ContainsFunc(a.show.TargetSelect(id), func(s record.Selector) bool { return s.Kind == kind && !s.Prefix && s.Key == key }) {
			return ""
		}
		sels := a.show.SourceSelect(id)
		if len(sels) != 1 || sels[0].Prefix || sels[0].Key != key {
			return ""
		}
		lead = sels[0].Kind
	}
	return lead
}

// follow lists a kind by the records of a stored one that have the same names, or names that
// sort the same.
func (a *Adapter) follow(ctx context.Context, lead string, p page) ([]record.Record, error) {
	prefix, after, err := a.storedNames(p)
	if err != nil {
		return nil, err
	}
	last := p.after
	for {
		recs, err := a.stored.List(ctx, lead, prefix, after, p.limit)
		if err != nil {
			return nil, err
		}
		shown, err := a.groups(ctx, recs)
		if err != nil {
			return nil, err
		}
		for i, rec := range recs {
			found := a.ledBy(p.kind, rec, shown[i])
			if name, _ := found.Key.Name(); found.Doc != nil && strings.HasPrefix(name, p.prefix) {
				if name <= last && last != "" {
					return nil, a.unsupported(p.kind, fmt.Sprintf("its names are declared to be in the order of those of %s, and %q is not: leave it out of Ordered", lead, name))
				}
				last = name
				p.recs = append(p.recs, found)
			}
			if len(p.recs) == p.limit {
				return p.recs, nil
			}
			after, _ = rec.Key.Name()
		}
		if len(recs) < p.limit {
			return p.recs, nil
		}
	}
}

// storedNames are the prefix of a page, and the name that it comes after, as the stored kind
// that leads has them.
func (a *Adapter) storedNames(p page) (prefix, after string, err error) {
	names := a.cfg.Names[p.kind]
	if names == nil {
		return p.prefix, p.after, nil
	}
	if _, prefix = a.sources(p); p.after == "" {
		return prefix, "", nil
	}
	if after, err = names.Name(p.after); err != nil {
		err = a.unsupported(p.kind, fmt.Sprintf("a list cannot go on after %q, which is no name", p.after))
	}
	return prefix, after, err
}

// ledBy is the record of a kind that a stored record leads, out of what its group shows;
// none where it shows none of this kind.
func (a *Adapter) ledBy(kind string, rec record.Record, shown []record.Record) record.Record {
	key := rec.Key
	if names := a.cfg.Names[kind]; names != nil {
		i := slices.IndexFunc(shown, func(s record.Record) bool {
			name, _ := s.Key.Name()
			stored, err := names.Name(name)
			return s.Kind == kind && err == nil && record.StringKey(stored) == key
		})
		if i < 0 {
			return record.Record{}
		}
		return shown[i]
	}
	if i := find(shown, kind, key); i >= 0 {
		return shown[i]
	}
	return record.Record{}
}

// groups makes what the groups of stored records show, for each record. Records in no
// group show nothing.
func (a *Adapter) groups(ctx context.Context, recs []record.Record) ([][]record.Record, error) {
	out := make([][]record.Record, len(recs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(loads)
	for i, rec := range recs {
		id, ok, err := a.show.GroupOf(rec.Kind, rec.Key)
		if !ok || err != nil {
			continue // it is parked where it is copied, and must not keep the others back
		}
		if a.show.Whole(rec.Kind) {
			if out[i], err = a.project(id, []record.Record{rec}); err != nil {
				return nil, fmt.Errorf("list: %w", err)
			}
			continue
		}
		g.Go(func() error {
			shown, err := a.shown(ctx, id)
			out[i] = shown
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	return out, nil
}

// sort reads all groups that may show records of the page and puts these into order.
func (a *Adapter) sort(ctx context.Context, p page) ([]record.Record, error) {
	seen := map[transform.GroupID]bool{}
	var firsts []record.Record // one of each group that was not read yet
	flush := func() error {
		shown, err := a.groups(ctx, firsts)
		firsts = firsts[:0]
		for _, recs := range shown {
			p.add(recs)
		}
		return err
	}
	kinds, prefix := a.sources(p)
	for _, kind := range kinds {
		err := a.each(ctx, kind, prefix, func(rec record.Record) error {
			id, ok, err := a.show.GroupOf(rec.Kind, rec.Key)
			if !ok || err != nil || seen[id] {
				return nil //nolint:nilerr // as in groups
			}
			if len(seen) == a.cfg.MaxSorted {
				return a.unsupported(p.kind, fmt.Sprintf("a list of %q would have to sort more than %d groups: give a longer prefix, or declare what leads the list", p.prefix, a.cfg.MaxSorted))
			}
			seen[id] = true
			if firsts = append(firsts, rec); len(firsts) == fullPage {
				return flush()
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return p.sorted(), nil
}

// sources are the stored kinds, and the prefix of their names, of whose groups any record
// of the page is.
func (a *Adapter) sources(p page) (kinds []string, prefix string) {
	if names := a.cfg.Names[p.kind]; names != nil {
		slash := strings.LastIndexByte(p.prefix, '/')
		if parent, err := names.Parent(p.prefix[:max(slash, 0)]); err == nil && parent != "" {
			prefix = parent + "/"
		}
		return []string{a.cfg.Leads[p.kind]}, prefix
	}
	for _, k := range a.show.SourceKinds() {
		if !transform.IsLineage(k.Name) && a.makes(k.Name, p.kind) {
			kinds = append(kinds, k.Name)
		}
	}
	return kinds, ""
}

// makes reports whether records of a stored kind may show records of a kind.
func (a *Adapter) makes(stored, kind string) bool {
	for _, probe := range append(probes, "x/y", "x/y/z") {
		id, ok, err := a.show.GroupOf(stored, record.StringKey(probe))
		if ok && err == nil {
			return slices.ContainsFunc(a.show.TargetSelect(id), func(s record.Selector) bool { return s.Kind == kind })
		}
	}
	return true // nothing is known of its names: its records will show
}
