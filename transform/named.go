package transform

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"dbcontroller.dev/record"
)

// Split separates ids into groups by name, and units, whose groups are not known yet. Both keep the
// order of ids.
func Split(d Direction, ids []GroupID) (named, units []GroupID) {
	byContent := func(id GroupID) bool { return d.LineageKind(id.Spec) != "" }
	// Most services have no groups by content. Return ids itself, without a copy.
	if !slices.ContainsFunc(ids, byContent) {
		return ids, nil
	}
	for _, id := range ids {
		if byContent(id) {
			units = append(units, id)
		} else {
			named = append(named, id)
		}
	}
	return named, units
}

// named reads and resolves groups by name.
func (r Resolver) named(ctx context.Context, ids []GroupID) ([]Component, error) {
	found, version, err := ReadSource(ctx, r.Source, r.Direction, r.From, ids)
	if tooLargeAlone(err, r.From, ids) {
		return tooLarge(ids, r.From.NotBefore), nil
	}
	if err != nil {
		return nil, err
	}
	return r.Given(ctx, ids, version, func(i int) Group { return found[ids[i]] })
}

// tooLargeAlone reports whether a single group exceeds the largest possible read. Such a group
// cannot be migrated.
func tooLargeAlone(err error, v View, ids []GroupID) bool {
	return errors.Is(err, record.ErrTooLarge) && len(ids) == 1 && v.Bytes >= GroupBytes
}

func tooLarge(ids []GroupID, version record.Version) []Component {
	return []Component{{Units: ids, Failed: []Failure{{ids[0], ErrLargeGroup}}, Version: version}}
}

// Given resolves groups by name whose source the caller already read at a version. source returns
// the source's records of ids[i].
func (r Resolver) Given(ctx context.Context, ids []GroupID, version record.Version, source func(i int) Group) ([]Component, error) {
	// Read the target only if the result depends on it. Reading it always would double the reads of
	// a copy.
	wanting := ids
	if !r.Compare {
		wanting = slices.DeleteFunc(slices.Clone(ids), func(id GroupID) bool { return !r.Direction.NeedsHave(id) })
	}
	// A comparison needs no guards, which are in a collection of their own for fixed-name kinds.
	held, err := readHeld(ctx, r.Target, r.Direction, r.To, wanting, !r.Compare)
	if tooLargeAlone(err, r.To, ids) {
		return tooLarge(ids, version), nil
	}
	if err != nil {
		return nil, err
	}
	return r.made(ids, version, source, func(i int) *Held {
		// nil means not read. The write then has no condition.
		if h, read := held[ids[i]]; read {
			return &h
		}
		return nil
	}), nil
}

// Both resolves groups by name whose source and target the caller already read. target returns live
// records without guards, so callers can compare the components and must not write them.
func (r Resolver) Both(ids []GroupID, version record.Version, source, target func(i int) Group) []Component {
	return r.made(ids, version, source, func(i int) *Held { return &Held{Group: target(i)} })
}

// Fresh resolves groups that the target probably does not hold, without reading the target. The
// write reports the groups that the target does hold.
func (r Resolver) Fresh(ids []GroupID, version record.Version, source func(i int) Group) []Component {
	return r.made(ids, version, source, func(int) *Held { return nil })
}

func (r Resolver) made(ids []GroupID, version record.Version, source func(i int) Group, held func(i int) *Held) []Component {
	cs := make([]Component, len(ids))
	for i, id := range ids {
		c, src, have := &cs[i], source(i), held(i)
		c.Units, c.Version, c.src = ids[i:i+1:i+1], version, src.Records
		w, err := groupWrite(r.Direction, id, version, src, have)
		if have != nil {
			c.held = have.Records
		}
		if err != nil {
			c.Failed = []Failure{{id, err}}
			continue
		}
		c.Write = w
		// Without the target's records, in sync cannot be claimed.
		c.InSync = have != nil && inSync(w, have.Records)
	}
	return cs
}

// fewRecords is the number of records up to which a search through them is cheaper than a map.
const fewRecords = 8

// located finds the records of a group by kind and key.
type located struct {
	records []record.Record
	at      map[ref]int // nil for few records
}

func locate(records []record.Record) located {
	l := located{records: records}
	if len(records) <= fewRecords {
		return l
	}
	l.at = make(map[ref]int, len(records))
	for i, r := range records {
		l.at[ref{r.Kind, r.Key}] = i
	}
	return l
}

// find returns the index of a record, or -1.
func (l located) find(kind string, key record.Key) int {
	if l.at == nil {
		return slices.IndexFunc(l.records, func(r record.Record) bool { return r.Kind == kind && r.Key == key })
	}
	if i, ok := l.at[ref{kind, key}]; ok {
		return i
	}
	return -1
}

// inSync reports whether a write would leave the target's records as they are.
func inSync(w record.GroupWrite, held []record.Record) bool {
	holds := locate(held)
	return !slices.ContainsFunc(w.Writes, func(w record.Write) bool {
		at := holds.find(w.Kind, w.Key)
		if at < 0 {
			return w.Doc != nil
		}
		// An unreadable record differs from every document.
		return w.Doc == nil || held[at].Err != nil || !bytes.Equal(w.Doc, held[at].Doc)
	})
}

// groupWrite transforms a group by name and returns its write: the results, and tombstones for all
// other records that the target holds of the group. A source group without records becomes
// tombstones only. have is nil if the target was not read. Otherwise the write expects the anchor's
// guard to be unchanged.
func groupWrite(d Direction, id GroupID, version record.Version, src Group, have *Held) (record.GroupWrite, error) {
	w := record.GroupWrite{Group: id.Name, Version: version, Anchor: -1}
	complement := Group{Name: id.Name}
	if have != nil {
		complement = have.Group
	}
	var out []record.Record
	if len(src.Records) > 0 {
		var err error
		if out, err = d.Transform(id, src, complement); err != nil {
			return w, err
		}
	}
	// The write always contains the anchor, as a tombstone if need be: its guard orders all writes
	// of the group.
	anchorKind, anchorKey := d.Anchor(id)
	add := func(r record.Write) {
		if r.Kind == anchorKind && r.Key == anchorKey {
			w.Anchor = len(w.Writes)
		}
		w.Writes = append(w.Writes, r)
	}
	for _, r := range out {
		add(record.Write{Kind: r.Kind, Key: r.Key, Doc: r.Doc})
	}
	// Delete records that the transformer no longer makes.
	makes := locate(out)
	for _, h := range complement.Records {
		if makes.find(h.Kind, h.Key) < 0 {
			add(record.Write{Kind: h.Kind, Key: h.Key})
		}
	}
	// Otherwise a late write of the group would meet no newer guard.
	if w.Anchor < 0 {
		add(record.Write{Kind: anchorKind, Key: anchorKey})
	}
	if have != nil {
		w.Writes[w.Anchor].Expect = &have.Anchor
	}
	if have != nil && have.Guarded {
		for i := range w.Writes {
			w.Writes[i].Seen = have.seen(w.Writes[i].Kind, w.Writes[i].Key)
		}
	}
	return w, nil
}
