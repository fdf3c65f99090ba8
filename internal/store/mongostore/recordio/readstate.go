package recordio

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// readState reads the guards of all records of the groups within the transaction. It is the first
// access to each collection and carries the collection's UUID. It therefore holds the collection
// until the transaction ends: a rename waits, or has already happened and fails this read. It adds
// them to have.
func (n *Records) readState(ctx context.Context, j *job, groups []int, have state) error {
	// One command per kind, whatever the number of groups.
	for _, kind := range j.kinds {
		keys := make([]record.Key, 0, len(groups))
		for _, g := range groups {
			for i := range j.groups[g].Writes {
				if w := &j.groups[g].Writes[i]; w.Kind == kind {
					keys = append(keys, w.Key)
				}
			}
		}
		if len(keys) == 0 {
			continue
		}
		t := j.targets[kind]
		found := have[kind]
		if found == nil {
			found = make(map[record.Key]held, len(keys))
			have[kind] = found
		}
		data := func(doc []byte) error {
			return addHeld(found, doc, !t.fixed, func(h *held, l wire.Layout) {
				h.data = true
				h.id = l.ID
				if !t.fixed { // otherwise it is in the side collection
					h.guard, _ = l.Guard(doc)
				}
			})
		}
		if !t.fixed {
			if err := n.findKeys(ctx, t.Place, keys, ReadOptions{keysOnly: true, guards: true}, data); err != nil {
				return err
			}
			continue
		}
		// The end of the token's mark is one more key of the same read, so it costs no round trip.
		// It is in the snapshot of the transaction, unless the mark ended later. Then the write of
		// an entry conflicts with the end (fences.endAppliers), and the transaction begins anew.
		var mark record.Key
		if t.mark != "" {
			var err error
			if mark, err = wire.EndedKey(t.mark); err != nil {
				return err
			}
		}
		ended := false
		entry := func(doc []byte) error {
			if mark != "" && wire.EndsMark(doc, mark) {
				ended = true
				return nil
			}
			return addHeld(found, doc, false, func(h *held, l wire.Layout) {
				h.side = true
				h.guard, _ = wire.GuardOf(doc)
			})
		}
		if err := n.readFixed(ctx, j, kind, keys, mark, data, entry); err != nil {
			return err
		}
		if ended {
			return fmt.Errorf("apply to %s behind %s: the fence has ended: %w", t.Coll, t.mark, record.ErrFenced)
		}
	}
	return nil
}

// readFixed reads the _id of each document of a fixed-name kind that has one of the keys. It also
// reads the entries of the side collection for these keys and for the mark. The guards are there, in
// the same snapshot.
func (n *Records) readFixed(ctx context.Context, j *job, kind string, keys []record.Key, mark record.Key, data, entry func(doc []byte) error) error {
	p, side := j.targets[kind].Place, wire.Place{Coll: conn.GuardsName(kind)}
	entries := keys
	if mark != "" {
		entries = append(keys, mark) //nolint:gocritic // keys is of this call alone
	}
	if j.joins && fitJoined(entries) {
		return n.findJoined(ctx, p, side.Coll, keys, entries, data, entry)
	}
	if err := n.findKeys(ctx, p, keys, ReadOptions{keysOnly: true}, data); err != nil {
		return err
	}
	return n.findKeys(ctx, side, entries, ReadOptions{}, entry)
}

// joinedKeyBytes bounds the keys of one findJoined. The command holds them twice, and so may the
// answer, which is one document.
const joinedKeyBytes = 2 << 20

// fitJoined reports whether one findJoined can read the keys.
func fitJoined(keys []record.Key) bool {
	size := 0
	for _, k := range keys {
		size += len(k)
	}
	return len(keys) <= keysPerFind && size <= joinedKeyBytes
}

var errJoined = errors.New("the server's answer lacks a part")

// findJoined reads two collections with one command, which saves a round trip. A transaction may not
// have $unionWith. $facet makes one document of the found ones, also if there are none, and $lookup
// adds the entries of the side collection. Only the first collection is named with its UUID.
func (n *Records) findJoined(ctx context.Context, p wire.Place, side string, keys, entries []record.Key, data, entry func(doc []byte) error) error {
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	*buf = appendJoined((*buf)[:0], p, side, keys, entries)
	answers := 0
	_, err := n.Find(ctx, p, *buf, ReadOptions{}, func(doc []byte) error {
		answers++
		// A part that is missing must not look like records that are.
		documents, ok := bson.Raw(doc).Lookup("data").ArrayOK()
		guards, also := bson.Raw(doc).Lookup("side").ArrayOK()
		if !ok || !also {
			return errJoined
		}
		if err := wire.Each(documents, data); err != nil {
			return err
		}
		return wire.Each(guards, entry)
	})
	if err == nil && answers != 1 {
		err = fmt.Errorf("find %s: %w: %d documents", p.Coll, errJoined, answers)
	}
	return err
}

func appendJoined(dst []byte, p wire.Place, side string, keys, entries []record.Key) []byte {
	const stage = bson.TypeEmbeddedDocument
	match := func(dst []byte, i int, keys []record.Key) []byte {
		dst, at := wire.BeginIndexed(dst, stage, i)
		dst, filter := wire.BeginElement(dst, bson.TypeEmbeddedDocument, "$match")
		return wire.EndDocument(wire.EndDocument(appendIn(dst, keys), filter), at)
	}
	dst = wire.AppendCommand(dst, "aggregate", p)
	dst, stages := wire.BeginElement(dst, bson.TypeArray, "pipeline")
	dst = match(dst, 0, keys)

	dst, at := wire.BeginIndexed(dst, stage, 1)
	dst, facet := wire.BeginElement(dst, bson.TypeEmbeddedDocument, "$facet")
	dst, inner := wire.BeginElement(dst, bson.TypeArray, "data")
	dst, project := wire.BeginIndexed(dst, stage, 0)
	dst, fields := wire.BeginElement(dst, bson.TypeEmbeddedDocument, "$project")
	dst = bsoncore.AppendInt32Element(dst, "_id", 1)
	for _, start := range []int{fields, project, inner, facet, at} {
		dst = wire.EndDocument(dst, start)
	}

	dst, at = wire.BeginIndexed(dst, stage, 2)
	dst, lookup := wire.BeginElement(dst, bson.TypeEmbeddedDocument, "$lookup")
	dst = bsoncore.AppendStringElement(dst, "from", side)
	dst = bsoncore.AppendStringElement(dst, "as", "side")
	dst, inner = wire.BeginElement(dst, bson.TypeArray, "pipeline")
	dst = match(dst, 0, entries)
	for _, start := range []int{inner, lookup, at, stages} {
		dst = wire.EndDocument(dst, start)
	}

	dst, cursor := wire.BeginElement(dst, bson.TypeEmbeddedDocument, "cursor")
	return wire.EndDocument(wire.EndDocument(dst, cursor), 0)
}

func addHeld(found map[record.Key]held, doc []byte, managed bool, set func(*held, wire.Layout)) error {
	l, err := wire.LayoutOf(doc, managed)
	if err != nil {
		return err
	}
	key, err := record.KeyOf(l.ID)
	if err != nil {
		return err
	}
	h := found[key]
	set(&h, l)
	found[key] = h
	return nil
}
