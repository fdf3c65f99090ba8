package adapt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// List returns records of the version shown, in the order of their names, as Store.List does.
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
	// after may be any text, also before or behind all names with the prefix.
	if !strings.HasPrefix(after, prefix) {
		if after > prefix {
			return nil, nil // after the last name with the prefix
		}
		after = ""
	}
	recs, err := a.list(ctx, page{kind: kind, prefix: prefix, after: after, limit: limit})
	return recs, about(kind, prefix, err)
}

func (a *Adapter) list(ctx context.Context, p page) ([]record.Record, error) {
	// One group: read it, however the names sort.
	if id, ok := a.within(p.kind, p.prefix); ok {
		shown, err := a.shown(ctx, id)
		if err != nil {
			return nil, err
		}
		p.add(shown)
		return p.sorted(), nil
	}
	if lead := a.leads[p.kind]; lead != "" {
		if prefix, after, ok := a.storedNames(p); ok {
			return a.follow(ctx, lead, prefix, after, p)
		}
	}
	return a.merge(ctx, p)
}

// page collects the records that a list returns.
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
}

func (p *page) sorted() []record.Record {
	slices.SortFunc(p.recs, func(a, b record.Record) int {
		x, _ := a.Key.Name()
		y, _ := b.Key.Name()
		return strings.Compare(x, y)
	})
	return p.recs[:min(p.limit, len(p.recs))]
}

// probes are sample endings of names. With a prefix before them, they stand for any name with the
// prefix.
var probes = []string{"x", "0", "~", "a-b"}

// within returns the group that contains all records of a kind with a prefix, if the declarations
// ensure that. They do if the prefix begins with the text that selects the group.
func (a *Adapter) within(kind, prefix string) (id transform.GroupID, ok bool) {
	for i, probe := range probes {
		of, known, err := a.show.GroupOfTarget(kind, record.StringKey(prefix+probe))
		// Two names with the prefix belong to different groups.
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

// lead returns the stored kind whose records have the same names as the records shown.
func (a *Adapter) lead(kind string) string {
	if lead := a.cfg.Leads[kind]; lead != "" {
		return lead
	}
	lead := ""
	for _, probe := range probes {
		key := record.StringKey(probe)
		id, ok, err := a.show.GroupOfTarget(kind, key)
		if !ok || err != nil || a.show.LineageKind(id.Spec) != "" {
			return ""
		}
		// The record shown must have the name of its group, and be found by it.
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

// storedNames maps the prefix of a page, and the name that it starts after, to the leading stored
// kind. ok is false unless the names under the prefix sort the same.
func (a *Adapter) storedNames(p page) (prefix, after string, ok bool) {
	names := a.cfg.Names[p.kind]
	if names == nil {
		return p.prefix, p.after, true
	}
	// A mapping knows whole segments only. List filters by the rest of the prefix.
	parent := p.prefix[:max(strings.LastIndexByte(p.prefix, '/'), 0)]
	if !a.cfg.Ordered[p.kind] && !transform.KeepsOrder(names, parent) {
		return "", "", false
	}
	if prefix = a.storedPrefix(names, parent); prefix == "" && p.prefix != "" {
		return "", "", false // records with this prefix may be anywhere among the others
	}
	if p.after != "" {
		var err error
		if after, err = names.Name(p.after); err != nil {
			return "", "", false // it may be a name that no record has
		}
	}
	return prefix, after, true
}

// storedPrefix returns the common prefix of the stored names under a parent, or "" if it is
// unknown.
func (a *Adapter) storedPrefix(names transform.Mapping, parent string) string {
	if stored, err := names.Parent(parent); err == nil && stored != "" {
		return stored + "/"
	}
	return ""
}

// keeper returns a function that gives back the memory of all reads since the call of keeper,
// except for the shown records.
func keeper(ctx context.Context) func(shown []record.Record) {
	read := memory.ReadsOf(ctx)
	held := read.Held()
	return func(shown []record.Record) {
		bytes := held
		for _, rec := range shown {
			bytes += int64(len(rec.Doc))
		}
		read.Keep(bytes)
	}
}

// member is a leading stored record and the records that its group shows.
type member struct {
	name  string // the stored name
	alone bool   // it is the only record of its group, and leads all of its records
	shown []record.Record
}

// follow lists a kind by the records of a stored kind with the same names, or with names that sort
// the same.
func (a *Adapter) follow(ctx context.Context, lead, prefix, after string, p page) (recs []record.Record, err error) {
	keep := keeper(ctx)
	defer func() { keep(recs) }()
	large := false
	for limit := p.limit; ; {
		members, more, err := a.members(ctx, p.kind, lead, prefix, after, limit)
		if errors.Is(err, record.ErrTooLarge) && limit > 1 {
			// Groups may be much larger than the records that they show. Read fewer at a time.
			keep(p.recs)
			limit, large = limit/2, true
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			after = m.name
			found, ok := a.ledBy(p.kind, m)
			if !ok {
				continue
			}
			name, _ := found.Key.Name()
			switch {
			// Going on would repeat or omit records without an error.
			case name <= p.after && p.after != "":
				return nil, a.unsupported(p.kind, fmt.Sprintf("its names are declared to be in the order of those of %s, and %q is not: leave it out of Ordered", lead, name))
			case strings.HasPrefix(name, p.prefix):
				p.recs = append(p.recs, found)
			case name > p.prefix:
				return p.recs, nil // after the last name with the prefix
			}
			if p.after = name; len(p.recs) == p.limit {
				return p.recs, nil
			}
		}
		if !more {
			return p.recs, nil
		}
		keep(p.recs)
		if !large {
			limit = min(2*limit, max(limit, fullPage)) // larger steps over records that show nothing
		}
	}
}

// members returns up to limit records of the leading stored kind, and whether there may be more. If
// a record is the whole group, the list itself reads it. Otherwise members lists the names first
// and then reads all groups with one command. Records without a group show nothing. The copy parks
// them, and they must not stop the list.
func (a *Adapter) members(ctx context.Context, kind, lead, prefix, after string, limit int) (out []member, more bool, err error) {
	if a.show.Whole(lead) || a.batch == nil {
		recs, err := a.stored.List(ctx, lead, prefix, after, limit)
		if err != nil {
			return nil, false, err
		}
		out, err = a.showAll(lead, recs, func(ids []transform.GroupID) (groups, error) { return a.loadAll(ctx, ids, true) })
		return out, len(recs) == limit, err
	}
	if a.paging != nil && !a.alone.Load() {
		out, more, err := a.together(ctx, kind, lead, prefix, after, limit)
		// The store cannot do it. Use the slower ways below.
		if !errors.Is(err, errNoIndex) {
			return out, more, err
		}
	}
	names, err := a.batch.ListNames(ctx, lead, prefix, after, limit)
	if err != nil {
		return nil, false, err
	}
	recs := make([]record.Record, len(names))
	for i, name := range names {
		recs[i] = record.Record{Kind: lead, Key: record.StringKey(name)}
	}
	out, err = a.showAll(lead, recs, func(ids []transform.GroupID) (groups, error) { return a.loadAll(ctx, ids, true) })
	return out, len(names) == limit, err
}

// together lists the leading stored kind and reads the rest of the groups at the same moment. It
// scans the names of each kind once.
func (a *Adapter) together(ctx context.Context, kind, lead, prefix, after string, limit int) (out []member, more bool, err error) {
	var refused error // an error of the groups themselves, not of the store
	recs, with, err := a.paging.ListWith(ctx, lead, prefix, after, limit, a.makers[kind], func(recs []record.Record) (rest []record.Selector, err error) {
		for _, rec := range recs {
			id, ok, err := a.show.GroupOf(rec.Kind, rec.Key)
			if !ok || err != nil {
				continue // no group, as in showAll
			}
			sels, err := a.selectors(id)
			if refused = err; err != nil {
				return nil, err
			}
			for _, sel := range sels {
				// The list reads this record itself.
				if sel.Kind != lead || sel.Prefix || sel.Key != rec.Key {
					rest = append(rest, sel)
				}
			}
		}
		return rest, nil
	})
	if refused != nil {
		return nil, false, refused
	}
	if err != nil {
		return nil, false, a.paged(err)
	}
	out, err = a.showAll(lead, recs, func(ids []transform.GroupID) (groups, error) {
		found := make(groups, len(ids))
		a.sort(found, ids, append(with, recs...))
		for id, of := range found {
			// A prefix selector may also find a listed record.
			found[id] = slices.CompactFunc(of, func(a, b record.Record) bool { return a.Kind == b.Kind && a.Key == b.Key })
		}
		return found, nil
	})
	return out, len(recs) == limit, err
}

// showAll returns, for each leading stored record, the records that its group shows. load reads the
// groups of which recs has only a part.
func (a *Adapter) showAll(lead string, recs []record.Record, load func([]transform.GroupID) (groups, error)) ([]member, error) {
	out := make([]member, len(recs))
	of := make([]int, len(recs)) // index of each record's group
	var ids []transform.GroupID
	var stored [][]record.Record
	// Names without documents still have to be loaded.
	alone := len(recs) > 0 && recs[0].Doc != nil && a.show.Whole(lead)
	places := map[transform.GroupID]int{}
	for i, rec := range recs {
		out[i].name, _ = rec.Key.Name()
		id, ok, err := a.show.GroupOf(rec.Kind, rec.Key)
		if of[i] = -1; !ok || err != nil {
			continue
		}
		if alone {
			out[i].alone = true
			of[i], ids, stored = len(ids), append(ids, id), append(stored, recs[i:i+1])
			continue
		}
		// Several leading records may be in one group. Read it once.
		at, there := places[id]
		if !there {
			at, ids = len(ids), append(ids, id)
			places[id] = at
		}
		of[i] = at
	}
	if !alone {
		loaded, err := load(ids)
		if err != nil {
			return nil, err
		}
		stored = make([][]record.Record, len(ids))
		for i, id := range ids {
			// The leading record may have been deleted since it was listed.
			if led(lead, loaded[id]) {
				stored[i] = loaded[id]
			}
		}
	}
	shown, err := a.projectAll(ids, stored)
	if err != nil {
		return nil, err
	}
	for i, at := range of {
		if at >= 0 {
			out[i].shown = shown[at]
		}
	}
	return out, nil
}

// ledBy returns the record of a kind that belongs to a leading stored record.
func (a *Adapter) ledBy(kind string, m member) (record.Record, bool) {
	names := a.cfg.Names[kind]
	if len(m.shown) == 1 && m.alone && m.shown[0].Kind == kind {
		return m.shown[0], true
	}
	i := slices.IndexFunc(m.shown, func(s record.Record) bool {
		name, ok := s.Key.Name()
		if ok && names != nil && s.Kind == kind {
			stored, err := names.Name(name)
			return err == nil && stored == m.name
		}
		return ok && s.Kind == kind && name == m.name
	})
	if i < 0 {
		return record.Record{}, false
	}
	return m.shown[i], true
}

// sources returns the stored kinds whose groups may contain the page's records, and the prefix of
// their names.
func (a *Adapter) sources(p page) (kinds []string, prefix string) {
	if names := a.cfg.Names[p.kind]; names != nil {
		return []string{a.cfg.Leads[p.kind]}, a.storedPrefix(names, p.prefix[:max(strings.LastIndexByte(p.prefix, '/'), 0)])
	}
	if lead := a.leads[p.kind]; lead != "" {
		return []string{lead}, p.prefix
	}
	return a.makers[p.kind], ""
}

// makes reports whether records of a stored kind may show records of a kind.
func (a *Adapter) makes(stored, kind string) bool {
	for _, probe := range append(probes, "x/y", "x/y/z") {
		id, ok, err := a.show.GroupOf(stored, record.StringKey(probe))
		if ok && err == nil {
			return slices.ContainsFunc(a.show.TargetSelect(id), func(s record.Selector) bool { return s.Kind == kind })
		}
	}
	return true // nothing is known about its names: assume that its records show
}
