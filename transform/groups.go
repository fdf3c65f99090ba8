package transform

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"dbcontroller.dev/record"
)

// Comparison is one page of comparing the two sides of a direction.
type Comparison struct {
	Compared int       // groups compared
	Scanned  int       // records read to find them
	Differ   []GroupID // those whose sides differ
	Orphans  []Orphan  // records of the target that no group can have
	Next     record.Range
	Done     bool
}

// Difference is a group whose sides differ. Source distinguishes one state of the source
// from another. Between two comparisons in which it is the same nothing has changed there
// that is known to belong to the group, and the target has had that long to follow. Where it
// is another, there was a change whose own migration writes the group.
type Difference struct {
	ID     GroupID
	Source uint64
	Failed bool // it cannot be transformed
	// What names a record that differs, and where: by fields, without their values. Empty of
	// what cannot be transformed.
	What string
}

// Orphan is an orphan: a record of the target whose key belongs to no group of the
// direction. Another transformation has made it, or another program.
type Orphan struct {
	Kind string
	Key  record.Key
	Err  error // why it belongs to none
}

// View is how one side of a direction is read: where its kinds are, and the version that no
// answer may be older than. What was there before a comparison began, and is not in a page
// from the past, would count as equal, or as absent.
type View struct {
	Tokens    record.Tokens
	NotBefore record.Version
	Bytes     int // of one read, at most; 0: no bound (see Each)
}

// Within is v with reads of so many bytes at most.
func (v View) Within(bytes int) View {
	v.Bytes = bytes
	return v
}

// AtLeast is v with answers that are not older than w either.
func (v View) AtLeast(w record.Version) View {
	if w.Compare(v.NotBefore) > 0 {
		v.NotBefore = w
	}
	return v
}

// Held is what the target holds of a group: its live records, and the guard of its
// anchor, which a write that was made with this complement must still find.
type Held struct {
	Group
	Anchor record.Guard
}

// Names are the groups that differ.
func Names(differ []Difference) []GroupID {
	ids := make([]GroupID, len(differ))
	for i, d := range differ {
		ids[i] = d.ID
	}
	return ids
}

// SourceState is Difference.Source of some records.
func SourceState(rs []record.Record) uint64 {
	h := fnv.New64a()
	for _, r := range rs {
		for _, part := range [][]byte{[]byte(r.Kind), []byte(r.Key), r.Doc} {
			_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part)))) // a hash never fails
			_, _ = h.Write(part)
		}
	}
	return h.Sum64()
}

// SortRecords orders records as a Group has them: by kind, then by key.
func SortRecords(rs []record.Record) {
	slices.SortFunc(rs, func(a, b record.Record) int {
		if c := strings.Compare(a.Kind, b.Kind); c != 0 {
			return c
		}
		return strings.Compare(string(a.Key), string(b.Key))
	})
}

// ReadSource reads the live records of groups of d's source at one snapshot. Groups that do
// not exist are absent from the result.
func ReadSource(ctx context.Context, r record.Reader, d Direction, v View, ids []GroupID) (map[GroupID]Group, record.Version, error) {
	return readSource(ctx, r, d, v, ids, false)
}

func readSource(ctx context.Context, r record.Reader, d Direction, v View, ids []GroupID, keysOnly bool) (map[GroupID]Group, record.Version, error) {
	req := record.ReadRequest{Tokens: v.Tokens, NotBefore: v.NotBefore, Bytes: v.Bytes, KeysOnly: keysOnly}
	for _, id := range ids {
		req.Select = append(req.Select, d.SourceSelect(id)...)
	}
	snap, err := r.Read(ctx, req)
	if err != nil {
		return nil, record.Version{}, fmt.Errorf("read source: %w", err)
	}
	groups := make(map[GroupID]Group, len(ids))
	for _, rec := range snap.Records {
		// A key that has no group is found by a prefix at most; it is parked where it is
		// scanned or changed, and must not keep the others back.
		if id, ok, err := d.GroupOf(rec.Kind, rec.Key); ok && err == nil {
			groups[id] = Group{Name: id.Name, Records: append(groups[id].Records, rec)}
		}
	}
	for _, g := range groups {
		SortRecords(g.Records)
	}
	return groups, snap.Version, nil
}

// ReadKeys returns which of ids d's source holds anything of, without reading what it holds.
// No id goes by content.
func ReadKeys(ctx context.Context, r record.Reader, d Direction, v View, ids []GroupID) (map[GroupID]bool, error) {
	found, _, err := readSource(ctx, r, d, v, ids, true)
	there := make(map[GroupID]bool, len(found))
	for id := range found {
		there[id] = true
	}
	return there, err
}

// ReadTarget reads what d's target holds of groups. Every id has an entry.
func ReadTarget(ctx context.Context, r record.Reader, d Direction, v View, ids []GroupID) (map[GroupID]Held, error) {
	held := make(map[GroupID]Held, len(ids))
	if len(ids) == 0 {
		return held, nil
	}
	req := record.ReadRequest{Tokens: v.Tokens, NotBefore: v.NotBefore, Bytes: v.Bytes, Guards: true}
	for _, id := range ids {
		held[id] = Held{Group: Group{Name: id.Name}}
		req.Select = append(req.Select, d.TargetSelect(id)...)
	}
	snap, err := r.Read(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("read target: %w", err)
	}
	for _, rec := range snap.Records {
		id, ok, err := d.GroupOfTarget(rec.Kind, rec.Key)
		h, wanted := held[id]
		if !ok || err != nil || !wanted {
			continue
		}
		if kind, key := d.Anchor(id); rec.Kind == kind && rec.Key == key {
			h.Anchor = rec.Guard
		}
		if !rec.Tombstone {
			h.Records = append(h.Records, rec)
		}
		held[id] = h
	}
	for _, h := range held {
		SortRecords(h.Records)
	}
	return held, nil
}
