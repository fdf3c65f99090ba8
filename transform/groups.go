package transform

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/record"
)

// Comparison is the result of comparing one page of the two sides of a direction.
type Comparison struct {
	Compared int       // number of groups compared
	Scanned  int       // number of records read to find the groups
	Differ   []GroupID // groups whose sides differ
	Orphans  []Orphan  // target records without a possible group
	Next     record.Range
	Done     bool
}

// Difference is a group whose sides differ. Source is a hash of the group's source state. If Source
// is equal in two comparisons, no change that belongs to the group is known between them, and the
// target had that time to catch up. If it differs, there was a change, and migrating that change
// writes the group.
type Difference struct {
	ID     GroupID
	Source uint64
	Failed bool // the group cannot be transformed
	// What names one differing record and field, without values. It is empty if the group cannot be
	// transformed.
	What string
}

// Orphan is a target record whose key belongs to no group of the direction. Another transformation
// or another program wrote it.
type Orphan struct {
	Kind string
	Key  record.Key
	Err  error // why the key has no group
}

// View defines how to read one side of a direction: its tokens, and the oldest acceptable version.
// A page must not be older than the comparison. Otherwise later records are missing from it, and
// count as equal or absent.
type View struct {
	Tokens    record.Tokens
	NotBefore record.Version
	Bytes     int // limit of one read; 0: none (see Each)
}

// Within returns v with a limit of bytes for each read.
func (v View) Within(bytes int) View {
	v.Bytes = bytes
	return v
}

// AtLeast returns v with answers that are also not older than w.
func (v View) AtLeast(w record.Version) View {
	if w.Compare(v.NotBefore) > 0 {
		v.NotBefore = w
	}
	return v
}

// Held is the target's content of a group: its live records and the guard of its anchor. A write
// that was computed from this complement expects that guard to be unchanged.
type Held struct {
	Group
	Anchor record.Guard
	// Gone holds the tombstones of the group.
	Gone []record.Record
	// Guarded means that all records were read with their guards.
	Guarded bool
}

// seen returns the record as it was read, or one without a key.
func (h *Held) seen(kind string, key record.Key) *record.Record {
	for _, rs := range [][]record.Record{h.Records, h.Gone} {
		for i := range rs {
			if rs[i].Kind == kind && rs[i].Key == key {
				return &rs[i]
			}
		}
	}
	return &record.Record{}
}

// Names returns the IDs of the groups that differ.
func Names(differ []Difference) []GroupID {
	ids := make([]GroupID, len(differ))
	for i, d := range differ {
		ids[i] = d.ID
	}
	return ids
}

// SourceState returns a hash of records, in the order given, as Difference.Source has it.
func SourceState(rs []record.Record) uint64 {
	h := fnv.New64a()
	for _, r := range rs {
		// Hash lengths too, so that different splits of the same bytes differ.
		for _, part := range [][]byte{[]byte(r.Kind), []byte(r.Key), r.Doc} {
			_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part)))) // a hash never fails
			_, _ = h.Write(part)
		}
	}
	return h.Sum64()
}

// SortRecords sorts records in the order of a Group: by kind, then by key.
func SortRecords(rs []record.Record) {
	slices.SortFunc(rs, func(a, b record.Record) int {
		if c := strings.Compare(a.Kind, b.Kind); c != 0 {
			return c
		}
		return strings.Compare(string(a.Key), string(b.Key))
	})
}

// ReadSource reads the live records of groups of d's source in one snapshot. Groups that do not
// exist are absent from the result.
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
		// Only a prefix selector can find a key without a group. The scan or the change stream
		// parks it; an error here would hold up the other groups.
		if id, ok, err := d.GroupOf(rec.Kind, rec.Key); ok && err == nil {
			groups[id] = Group{Name: id.Name, Records: append(groups[id].Records, rec)}
		}
	}
	// Transformers rely on the order of records, and a read returns them in no defined order.
	for _, g := range groups {
		SortRecords(g.Records)
	}
	return groups, snap.Version, nil
}

// ReadKeys reports which of ids exist in d's source. It reads keys only. No id may go by content.
func ReadKeys(ctx context.Context, r record.Reader, d Direction, v View, ids []GroupID) (map[GroupID]bool, error) {
	found, _, err := readSource(ctx, r, d, v, ids, true)
	there := make(map[GroupID]bool, len(found))
	for id := range found {
		there[id] = true
	}
	return there, err
}

// ReadTarget reads the target's records of groups, with their guards. Every id gets an entry.
func ReadTarget(ctx context.Context, r record.Reader, d Direction, v View, ids []GroupID) (map[GroupID]Held, error) {
	return readHeld(ctx, r, d, v, ids, true)
}

func readHeld(ctx context.Context, r record.Reader, d Direction, v View, ids []GroupID, guards bool) (map[GroupID]Held, error) {
	held := make(map[GroupID]Held, len(ids))
	if len(ids) == 0 {
		return held, nil
	}
	req := record.ReadRequest{Tokens: v.Tokens, NotBefore: v.NotBefore, Bytes: v.Bytes, Guards: guards}
	for _, id := range ids {
		// A group without records also has an entry, with a zero guard.
		held[id] = Held{Group: Group{Name: id.Name}, Guarded: guards}
		req.Select = append(req.Select, d.TargetSelect(id)...)
	}
	snap, err := r.Read(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("read target: %w", err)
	}
	for _, rec := range snap.Records {
		id, ok, err := d.GroupOfTarget(rec.Kind, rec.Key)
		h, wanted := held[id]
		// A prefix selector may also find records of other groups.
		if !ok || err != nil || !wanted {
			continue
		}
		// The anchor's guard counts even if the anchor is a tombstone.
		if kind, key := d.Anchor(id); rec.Kind == kind && rec.Key == key {
			h.Anchor = rec.Guard
		}
		if rec.Tombstone {
			h.Gone = append(h.Gone, rec)
		} else {
			h.Records = append(h.Records, rec)
		}
		held[id] = h
	}
	for _, h := range held {
		SortRecords(h.Records)
	}
	return held, nil
}

// idOf finds the top-level _id of a document. It skips elements by their lengths and does not
// allocate. The result has no bytes for an _id that is null, MinKey or MaxKey.
func idOf(doc []byte) (bson.RawValue, bool) {
	length, rest, ok := bsoncore.ReadLength(doc)
	if !ok || int(length) != len(doc) || length < 5 {
		return bson.RawValue{}, false
	}
	for len(rest) > 1 {
		elem, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return bson.RawValue{}, false
		}
		// elem is a type byte, the field name with its zero byte, and the value.
		if len(elem) >= 5 && string(elem[1:5]) == "_id\x00" {
			return bson.RawValue{Type: bson.Type(elem[0]), Value: elem[5:]}, true
		}
		rest = after
	}
	return bson.RawValue{}, false
}
