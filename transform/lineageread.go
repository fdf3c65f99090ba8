package transform

import (
	"context"
	"fmt"

	"dbcontroller.dev/record"
)

// question is a pending read of one record of the target.
type question struct {
	ref
	take func(record.Record) error
	// counterpart is the key of the same entry in the previous direction's lineage, which is in
	// today's source. The sides are swapped there.
	counterpart record.Key
	inherit     func(record.Record) error
	epoch       uint64 // epoch of the entry found; 0 if none
}

// readTarget reads all pending entries and target records, and all further ones that they lead to.
func (x *resolution) readTarget(ctx context.Context) error {
	for {
		if err := x.derive(); err != nil && !x.alone {
			return err
		}
		// Each read may name more groups and records. Repeat until nothing new turns up.
		qs := x.questions()
		if len(qs) == 0 {
			return nil
		}
		// One command for all of them, whatever their kinds.
		asked := make(map[ref]*question, len(qs))
		req := record.ReadRequest{Tokens: x.To.Tokens, NotBefore: x.To.NotBefore, Bytes: x.bytes(x.To), Guards: true, Select: make([]record.Selector, len(qs))}
		for i, q := range qs {
			asked[q.ref] = q
			req.Select[i] = record.Selector{Kind: q.kind, Key: q.key}
		}
		snap, err := x.Target.Read(ctx, req)
		if err != nil {
			return fmt.Errorf("read target: %w", err)
		}
		for _, r := range snap.Records {
			q := asked[ref{r.Kind, r.Key}]
			if q == nil {
				continue
			}
			// An unreadable lineage entry stops the resolution. An unreadable target record does
			// not, because the write may replace it.
			err := r.Err
			if err == nil || r.Kind != x.lineage {
				err = q.take(r)
			}
			if err != nil {
				return fmt.Errorf("%s %s: %w", r.Kind, r.Key, err)
			}
			q.epoch = r.Guard.Epoch
			// The target may hold the result of a later snapshot. Reading the source at an older
			// one would undo it.
			if v := r.Guard.Version.Snapshot(); r.Guard.Epoch == x.Epoch && v.Compare(x.least) > 0 {
				x.least = v
			}
		}
		if err := x.readInherited(ctx, qs); err != nil {
			return err
		}
	}
}

// bytes returns the limit of a read. A single unit gets at least GroupBytes, because its group may
// be large.
func (x *resolution) bytes(v View) int {
	if x.alone && v.Bytes > 0 {
		return max(v.Bytes, GroupBytes)
	}
	return v.Bytes
}

// questions returns reads for everything that is not known yet, and marks it as known.
func (x *resolution) questions() (qs []*question) {
	for _, m := range x.members {
		// Other members do not need their own entry: the group's list decides.
		if (m.unit || m.look) && !m.known {
			m.known = true
			inherit := func(r record.Record) (err error) { m.descent.group, err = readTarget(r.Doc); return err }
			qs = append(qs, &question{ref: ref{x.lineage, memberKey(m.ref)}, take: func(r record.Record) (err error) {
				m.guard = r.Guard
				m.descent, err = readDescent(r.Doc)
				return err
			}, counterpart: targetKey(m.ref), inherit: inherit})
		}
	}
	for _, g := range x.groups {
		if !g.known {
			g.known = true
			inherit := func(r record.Record) error {
				f, err := readFamily(r.Doc)
				// The previous direction's targets are this direction's sources.
				g.family = family{members: f.targets, targets: f.members}
				return err
			}
			qs = append(qs, &question{ref: ref{x.lineage, groupKey(g.name)}, take: func(r record.Record) (err error) {
				g.guard = r.Guard
				g.family, err = readFamily(r.Doc)
				return err
			}, counterpart: groupKey(g.name), inherit: inherit})
		}
	}
	for _, t := range x.targets {
		if !t.known {
			t.known = true
			inherit := func(r record.Record) error {
				d, err := readDescent(r.Doc)
				t.group = d.group
				return err
			}
			qs = append(qs, &question{ref: ref{x.lineage, targetKey(t.ref)}, take: func(r record.Record) (err error) {
				t.guard = r.Guard
				t.group, err = readTarget(r.Doc)
				return err
			}, counterpart: memberKey(t.ref), inherit: inherit}, &question{ref: t.ref, take: func(r record.Record) error {
				t.rec, t.live = r, !r.Tombstone
				return nil
			}})
		}
	}
	return qs
}

// readInherited reads the previous direction's entries for every question that this direction has
// no newer answer to. So the reverse direction knows all groups from its start. That lineage no
// longer changes: it is in the source now, and nothing syncs to the source.
func (x *resolution) readInherited(ctx context.Context, qs []*question) error {
	// No token: there was no earlier direction between the two namespaces.
	if _, ok := x.From.Tokens[x.lineage]; !ok {
		return nil
	}
	asked := map[record.Key]*question{}
	req := record.ReadRequest{Tokens: x.From.Tokens, NotBefore: x.least, Bytes: x.bytes(x.From), Guards: true}
	for _, q := range qs {
		// Plain target records have no counterpart in lineage.
		if q.inherit != nil {
			asked[q.counterpart] = q
			req.Select = append(req.Select, record.Selector{Kind: x.lineage, Key: q.counterpart})
		}
	}
	if len(asked) == 0 {
		return nil
	}
	snap, err := x.Source.Read(ctx, req)
	if err != nil {
		return fmt.Errorf("read lineage of the source: %w", err)
	}
	for _, r := range snap.Records {
		// The two directions take turns in writing, so the entry of the later epoch is right.
		if q := asked[r.Key]; q != nil && r.Guard.Epoch > q.epoch {
			err := r.Err
			if err == nil {
				err = q.inherit(r)
			}
			if err != nil {
				return fmt.Errorf("%s %s: %w", r.Kind, r.Key, err)
			}
		}
	}
	return nil
}

// readSource reads all members in one snapshot. It does nothing if all are read, at a version not
// older than the target's content.
func (x *resolution) readSource(ctx context.Context) error {
	// An older snapshot could miss changes that the target already contains.
	done := !x.version.IsZero() && x.version.Compare(x.least) >= 0
	for _, m := range x.members {
		done = done && m.read
	}
	if done {
		return nil
	}
	req := record.ReadRequest{Tokens: x.From.Tokens, NotBefore: x.least, Bytes: x.bytes(x.From)}
	for _, m := range x.members {
		req.Select = append(req.Select, record.Selector{Kind: m.kind, Key: m.key})
	}
	snap, err := x.Source.Read(ctx, req)
	if err != nil {
		return fmt.Errorf("read source: %w", err)
	}
	x.version = snap.Version
	// Reset everything derived from the previous snapshot. Members of two snapshots must not mix.
	for _, m := range x.members {
		m.read, m.there, m.rec, m.content, m.err = true, false, record.Record{}, "", nil
	}
	for _, g := range x.groups {
		g.transformed, g.adopted = false, nil
	}
	x.content = map[string][]*memberState{}
	for _, r := range snap.Records {
		m := x.members[ref{r.Kind, r.Key}]
		if m == nil {
			continue
		}
		m.rec, m.there = r, true
		// A record without a group fails alone, and does not stop the others of the snapshot.
		if m.content, m.err = x.Direction.ContentOf(r); m.err == nil {
			x.content[m.content] = append(x.content[m.content], m)
		}
	}
	return nil
}
