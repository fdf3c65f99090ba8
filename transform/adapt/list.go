package adapt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/internal/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

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
	if !strings.HasPrefix(after, prefix) {
		if after > prefix {
			return nil, nil // it is behind all that begin so
		}
		after = ""
	}
	recs, err := a.list(ctx, page{kind: kind, prefix: prefix, after: after, limit: limit})
	return recs, about(kind, prefix, err)
}

func (a *Adapter) list(ctx context.Context, p page) ([]record.Record, error) {
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
		if !ok || err != nil || a.show.LineageKind(id.Spec) != "" {
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

// storedNames are the prefix of a page, and the name that it comes after, as the stored kind
// that leads has them, if its names of this prefix sort the same.
func (a *Adapter) storedNames(p page) (prefix, after string, ok bool) {
	names := a.cfg.Names[p.kind]
	if names == nil {
		return p.prefix, p.after, true
	}
	parent := p.prefix[:max(strings.LastIndexByte(p.prefix, '/'), 0)]
	if !a.cfg.Ordered[p.kind] && !transform.KeepsOrder(names, parent) {
		return "", "", false
	}
	if prefix = a.storedPrefix(names, parent); prefix == "" && p.prefix != "" {
		return "", "", false // what has this prefix is anywhere among the others
	}
	if p.after != "" {
		var err error
		if after, err = names.Name(p.after); err != nil {
			return "", "", false // it need not be the name of a record
		}
	}
	return prefix, after, true
}

// storedPrefix is what the stored names of all that is under a parent begin with; empty where
// nothing is known of them.
func (a *Adapter) storedPrefix(names transform.Mapping, parent string) string {
	if stored, err := names.Parent(parent); err == nil && stored != "" {
		return stored + "/"
	}
	return ""
}

// keeper returns what gives back the memory of all that was read since, but for the records that are
// shown of it.
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

// member is a stored record that leads, and what its group shows.
type member struct {
	name  string // as stored
	alone bool   // it is its group, so that it leads whatever that shows
	shown []record.Record
}

// follow lists a kind by the records of a stored one that have the same names, or names that
// sort the same.
func (a *Adapter) follow(ctx context.Context, lead, prefix, after string, p page) (recs []record.Record, err error) {
	keep := keeper(ctx)
	defer func() { keep(recs) }()
	large := false
	for limit := p.limit; ; {
		members, more, err := a.members(ctx, p.kind, lead, prefix, after, limit)
		if errors.Is(err, record.ErrTooLarge) && limit > 1 {
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
			case name <= p.after && p.after != "":
				return nil, a.unsupported(p.kind, fmt.Sprintf("its names are declared to be in the order of those of %s, and %q is not: leave it out of Ordered", lead, name))
			case strings.HasPrefix(name, p.prefix):
				p.recs = append(p.recs, found)
			case name > p.prefix:
				return p.recs, nil // behind all that begin so
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
			limit = min(2*limit, max(limit, fullPage)) // what shows nothing is passed in larger steps
		}
	}
}

// members returns so many stored records of the kind that leads, and whether there may be more.
// A record that is its group alone is read with the list. Of others the names come first, and
// then all groups with one command. Records in no group show nothing: they are parked where
// they are copied, and must not keep the others back.
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

// together lists the stored kind that leads and reads the rest of the groups at the same moment,
// with one walk over the names of each kind.
func (a *Adapter) together(ctx context.Context, kind, lead, prefix, after string, limit int) (out []member, more bool, err error) {
	var refused error // what the groups cannot be read for, whatever the store can
	recs, with, err := a.paging.ListWith(ctx, lead, prefix, after, limit, a.makers[kind], func(recs []record.Record) (rest []record.Selector, err error) {
		for _, rec := range recs {
			id, ok, err := a.show.GroupOf(rec.Kind, rec.Key)
			if !ok || err != nil {
				continue // as in showAll
			}
			sels, err := a.selectors(id)
			if refused = err; err != nil {
				return nil, err
			}
			for _, sel := range sels {
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
			// A selector of the rest may have found what was listed.
			found[id] = slices.CompactFunc(of, func(a, b record.Record) bool { return a.Kind == b.Kind && a.Key == b.Key })
		}
		return found, nil
	})
	return out, len(recs) == limit, err
}

// showAll makes what the groups of stored records of the kind that leads show, for each record.
// load reads groups of which the records are not all.
func (a *Adapter) showAll(lead string, recs []record.Record, load func([]transform.GroupID) (groups, error)) ([]member, error) {
	out := make([]member, len(recs))
	of := make([]int, len(recs)) // the place of each one's group
	var ids []transform.GroupID
	var stored [][]record.Record
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

// ledBy is the record of a kind that a stored record leads, out of what its group shows.
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

// sources are the stored kinds, and the prefix of their names, of whose groups any record
// of the page is.
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
	return true // nothing is known of its names: its records will show
}
