package changes

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// This file follows a target to find changes that no Apply made.
//
// An Apply to a fixed-name kind writes the guard next to the document, in the same transaction. No
// other writer does, so the transaction shows the origin of a change, after a restart and for other
// controllers too. A managed kind has the guard in its document, where other writers may copy it.
// The change carries the guard, and the caller knows which guards it has written.

// follower is the additional state of a stream of Follow.
type follower struct {
	kinds  map[string]record.Token // by the UUID of the collection, 16 bytes
	guards map[string]string       // kind by the name of its side collection
	logs   bool                    // transactions may be spread over several logs
	batch  []source                // one for each change of this batch
	beside map[written]record.Guard
}

// source is the origin of a change.
type source struct {
	txn   string // the transaction; empty: none
	fixed bool
}

// written identifies a record in a transaction.
type written struct {
	txn, kind string
	key       record.Key
}

// nudgeMark is the _id in dbc_marks of the document that Nudge writes.
const nudgeMark = "nudge"

// Follow opens the changes of a target's collections after a position. The caller closes the
// stream.
func (n *Feed) Follow(ctx context.Context, from record.Position, toks record.Tokens) (record.Stream, error) {
	if from.IsZero() {
		return nil, errors.New("follow: no position")
	}
	mongos, err := n.IsMongos(ctx)
	if err != nil {
		return nil, conn.Classify("follow "+n.Name, err)
	}
	f := &follower{kinds: map[string]record.Token{}, guards: map[string]string{}, logs: mongos, beside: map[written]record.Guard{}}
	ids, names := bson.A{}, bson.A{}
	for kind, tok := range toks {
		id, err := hex.DecodeString(tok.ID)
		// A token without a UUID cannot be followed through renames.
		if err != nil || len(id) != 16 {
			return nil, fmt.Errorf("follow %s: %q is not the identity of a collection", kind, tok.ID)
		}
		f.kinds[string(id)] = tok
		ids = append(ids, bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id})
		// Only fixed-name kinds have guards in side collections.
		if tok.Fixed {
			f.guards[conn.GuardsName(kind)] = kind
			names = append(names, conn.GuardsName(kind))
		}
	}
	s := &stream{follower: f, at: conn.TimestampOf(from.At), most: record.CommitBytes}
	wait := streamWait
	if mongos {
		s.beat, s.got, wait = n.Beat, n.Pulse.Quicken, conn.ShardedWait
	}
	// Start inclusively: the changes of this cluster time may come again.
	start := s.at
	opts := options.ChangeStream().SetStartAtOperationTime(&start).SetShowExpandedEvents(true).
		SetMaxAwaitTime(wait).SetBatchSize(streamBatch)
	if s.cs, err = n.DB.Watch(ctx, followPipeline(ids, names), opts); err != nil {
		return nil, conn.Classify("follow "+n.Name, err)
	}
	return s, nil
}

// followPipeline selects the events of the collections by UUID, of their side collections, and of
// the marks. As in streamPipeline, names are matched in a computed field.
func followPipeline(ids, names bson.A) mongo.Pipeline {
	return mongo.Pipeline{
		{{Key: "$addFields", Value: bson.D{{Key: nameField, Value: bson.D{{Key: "$concat", Value: bson.A{"$ns.coll"}}}}}}},
		{{Key: "$match", Value: bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: "collectionUUID", Value: bson.D{{Key: "$in", Value: ids}}}},
			bson.D{{Key: nameField, Value: bson.D{{Key: "$in", Value: names}}}},
			// Marks of write blocks, and nudges, which keep an idle stream moving.
			bson.D{{Key: nameField, Value: conn.MarksCollection}},
			bson.D{{Key: "operationType", Value: bson.D{{Key: "$in", Value: bson.A{"dropDatabase", "invalidate"}}}}},
		}}}}},
		{{Key: "$project", Value: bson.D{
			{Key: "operationType", Value: 1},
			{Key: "ns.coll", Value: 1},
			{Key: "to.coll", Value: 1},
			{Key: "documentKey._id", Value: 1},
			{Key: "clusterTime", Value: 1},
			{Key: "wallTime", Value: 1},
			{Key: "collectionUUID", Value: 1},
			{Key: "operationDescription.validator", Value: 1},
			{Key: "lsid.id", Value: 1},
			{Key: "txnNumber", Value: 1},
			{Key: "fullDocument.g", Value: 1},
			{Key: "fullDocument." + wire.GuardField, Value: 1},
			{Key: "fullDocument." + conn.MarkBlocked, Value: 1},
			{Key: "updateDescription.updatedFields." + conn.MarkBlocked, Value: 1},
		}}},
	}
}

// followed reads one event of a stream of Follow. ok reports whether to deliver change.
func (s *stream) followed(raw bson.Raw, batch *record.ChangeBatch) (change record.Change, ok bool, err error) {
	f := s.follower
	if len(batch.Changes) == 0 {
		f.batch = f.batch[:0]
	}
	if t, i, ok := raw.Lookup("clusterTime").TimestampOK(); ok {
		s.at = bson.Timestamp{T: t, I: i}
	}
	if ms, ok := raw.Lookup("wallTime").DateTimeOK(); ok {
		batch.Wall = ms
	}
	op, _ := raw.Lookup("operationType").StringValueOK()
	coll, _ := rawdoc.Lookup(raw, "ns", "coll").StringValueOK()
	_, uuid, _ := raw.Lookup("collectionUUID").BinaryOK()
	// Only a transaction has a number together with its session.
	txn := ""
	if _, number := raw.Lookup("txnNumber").AsInt64OK(); number {
		txn = string(raw.Lookup("lsid").Value) + "/" + string(raw.Lookup("txnNumber").Value)
	}
	tok, ours := f.kinds[string(uuid)]
	switch op {
	case "dropDatabase", "invalidate":
		return change, false, fmt.Errorf("follow: %w: the stream was ended by %s", record.ErrHistoryLost, op)
	case "rename":
		// The UUID identifies the collection, so a rename only reports the new name.
		to, _ := rawdoc.Lookup(raw, "to", "coll").StringValueOK()
		return f.marker(tok, ours && to != "", to)
	case "modify":
		mark := ""
		if description, ok := raw.Lookup("operationDescription").DocumentOK(); ok {
			mark = conn.FenceMark(description)
		}
		return f.marker(tok, ours && mark != "", mark)
	case "drop":
		if !ours {
			return change, false, nil
		}
		return change, false, fmt.Errorf("follow: %w: collection %s of the target was dropped", record.ErrBroken, coll)
	case "insert", "update", "replace", "delete":
	default:
		return change, false, nil // events about indexes and the like do not change records
	}
	id := rawdoc.Lookup(raw, "documentKey", "_id")
	if coll == conn.MarksCollection {
		return f.mark(raw, id)
	}
	kind, side := f.guards[coll]
	if !ours && !side {
		return change, false, nil
	}
	key, err := record.KeyOf(id)
	if err != nil {
		return change, false, fmt.Errorf("follow %s: %w", coll, err)
	}
	if side && wire.IsEnded(key) {
		return change, false, nil // the end of a mark, no record
	}
	if side {
		// A guard in a transaction belongs to a change of the record that comes before or after it.
		_, b, _ := rawdoc.Lookup(raw, "fullDocument", "g").BinaryOK()
		guard, guarded := record.GuardFrom(b)
		if guarded && txn != "" {
			f.beside[written{txn, kind, key}] = guard
			return change, false, nil
		}
		f.batch = append(f.batch, source{})
		return record.Change{Kind: kind, Key: key, Delete: true}, true, nil // the guard is lost
	}
	change = record.Change{Kind: tok.Kind, Key: key, Delete: op == "delete"}
	if doc, ok := rawdoc.Lookup(raw, "fullDocument", wire.GuardField).DocumentOK(); ok && !tok.Fixed {
		if change.Guard, _ = wire.GuardOf(doc); !change.Guard.IsZero() {
			change.Origin = record.GuardedChange
		}
	}
	f.batch = append(f.batch, source{txn: txn, fixed: tok.Fixed})
	return change, true, nil
}

// marker returns the change that reports a new name or a fence's mark.
func (f *follower) marker(tok record.Token, ours bool, name string) (record.Change, bool, error) {
	if !ours {
		return record.Change{}, false, nil
	}
	f.batch = append(f.batch, source{})
	return record.Change{Kind: tok.Kind, Marker: name}, true, nil
}

// mark returns the marker of a write block. It was written once the block was in force.
func (f *follower) mark(raw bson.Raw, id bson.RawValue) (record.Change, bool, error) {
	name, _ := id.StringValueOK()
	blocked := rawdoc.Lookup(raw, "fullDocument", conn.MarkBlocked).Type != 0 ||
		rawdoc.Lookup(raw, "updateDescription", "updatedFields", conn.MarkBlocked).Type != 0
	kind, _, hidden := record.KindOfPhysical(name)
	for _, tok := range f.kinds {
		if tok.Kind == kind && hidden && blocked {
			return f.marker(tok, true, name)
		}
	}
	return record.Change{}, false, nil // a nudge: only its time matters
}

// settle sets the origin of the changes to fixed-name kinds, once the batch has the whole of each
// transaction.
func (f *follower) settle(batch *record.ChangeBatch) {
	for i := range batch.Changes {
		c, from := &batch.Changes[i], f.batch[i]
		// Only a transaction can contain both a document and its guard.
		if !from.fixed || from.txn == "" {
			continue
		}
		guard, beside := f.beside[written{from.txn, c.Kind, c.Key}]
		switch {
		case beside:
			c.Origin, c.Guard = record.AppliedChange, guard
		case f.logs:
			c.Origin = record.GuardedChange // the guard may be in another log
		}
	}
	// A batch has whole commits, so no guard matters to a later batch.
	clear(f.beside)
	f.replaced(batch)
}

// replaced removes each delete of a record that the same transaction inserts again. An Apply replaces
// records like this if unique values move between them, or if a document has a field that begins with
// $. The delete of a managed record has no guard and would count as foreign. The insert alone is the
// change of the record, with its origin.
func (f *follower) replaced(batch *record.ChangeBatch) {
	// Nearly every batch has no such delete.
	if !slices.ContainsFunc(batch.Changes, func(c record.Change) bool { return c.Delete }) {
		return
	}
	again := map[written]bool{}
	to := len(batch.Changes)
	// From the end, because the insert comes after the delete.
	for i := len(batch.Changes) - 1; i >= 0; i-- {
		c, from := batch.Changes[i], f.batch[i]
		if from.txn != "" {
			at := written{from.txn, c.Kind, c.Key}
			if c.Delete && again[at] {
				continue
			}
			again[at] = !c.Delete
		}
		to--
		batch.Changes[to], f.batch[to] = c, from
	}
	batch.Changes, f.batch = slices.Delete(batch.Changes, 0, to), slices.Delete(f.batch, 0, to)
}

// Nudge writes a mark that every stream of Follow reads, so that idle streams advance soon.
func (n *Feed) Nudge(ctx context.Context) error {
	err := n.DB.RunCommand(ctx, bson.D{
		{Key: "update", Value: conn.MarksCollection},
		{Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: nudgeMark}}},
			{Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(1)}}}}},
			{Key: "upsert", Value: true},
		}}},
	}).Err()
	if err != nil {
		return conn.Classify("nudge "+n.Name, err)
	}
	return nil
}
