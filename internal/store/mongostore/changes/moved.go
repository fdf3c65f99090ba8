package changes

import (
	"context"
	"encoding/hex"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// A sharded cluster recreates a collection, with all its documents and another UUID, when it moves
// or reshards it. The change events tell this from a drop and a restore (measured on 8.2):
//
//	reshardCollection, moveCollection, unshardCollection  one event with the old and the new UUID
//	movePrimary                                           a create event for the new UUID
//	drop, drop and create, dropDatabase                   a drop event with the old UUID
//	rename over it, $out                                  a rename event with the old UUID as dropTarget
//
// A move shows no drop event for the old collection. A create event under a name of the kind is then
// that of the move, or of a collection beside it. Callers accept only a collection that is alone,
// except for collections that occupy names since an aborted attempt: their validator shows them.
// Nobody can write these events into a log by writing documents.

// Moves reports whether the server recreates collections by itself, as a sharded cluster does.
func (n *Feed) Moves(ctx context.Context) (bool, error) {
	mongos, err := n.IsMongos(ctx)
	if err != nil {
		return false, conn.Classify("find out whether the server is sharded", err)
	}
	return mongos, nil
}

// Moved follows collections from a position, at which each existed under a name of its kind, to the
// present. Renames among these names, as of fences, do not matter. now has the token of each collection that either is unchanged or was only moved by the
// server. broken has the reason for every other kind. Both have no entry for a kind without a UUID.
func (n *Feed) Moved(ctx context.Context, from record.Position, toks record.Tokens) (now record.Tokens, broken map[string]string, err error) {
	now, broken, err = n.moved(ctx, from, toks)
	if err != nil {
		return nil, nil, fmt.Errorf("follow moved collections: %w", err)
	}
	return now, broken, nil
}

func (n *Feed) moved(ctx context.Context, from record.Position, toks record.Tokens) (record.Tokens, map[string]string, error) {
	// Read past a majority write of now, so that the events of all that the caller has seen are in.
	until, err := n.MajorityNow(ctx)
	if err != nil {
		return nil, nil, err
	}
	s := &stream{at: conn.TimestampOf(from.At), most: record.CommitBytes}
	mongos, err := n.IsMongos(ctx)
	if err != nil {
		return nil, nil, conn.Classify("watch "+n.Name, err)
	}
	wait := streamWait
	if mongos {
		s.beat, s.got, wait = n.Beat, n.Pulse.Quicken, conn.ShardedWait
		n.Pulse.Quicken()
	}
	start := s.at
	opts := options.ChangeStream().SetStartAtOperationTime(&start).SetShowExpandedEvents(true).SetMaxAwaitTime(wait).SetBatchSize(streamBatch)
	if s.cs, err = n.DB.Watch(ctx, movedPipeline(), opts); err != nil {
		return nil, nil, conn.Classify("watch "+n.Name, err)
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), conn.CloseTimeout)
		defer cancel()
		_ = s.Close(stop) // it was only read
	}()
	t := newTrail(toks)
	// The cluster may have moved an occupied name before the first event.
	listed, err := n.List(ctx, bson.D{{Key: "type", Value: "collection"}})
	if err != nil {
		return nil, nil, conn.Classify("watch "+n.Name, err)
	}
	for _, c := range listed {
		if c.Occupies() != "" {
			t.occupied[c.ID()] = true
		}
	}
	// Strictly after: the changes of one cluster time can come in several replies.
	for !s.at.After(until) {
		if s.tryNext(ctx) {
			t.event(s.cs.Current)
			if ts, i, ok := s.cs.Current.Lookup("clusterTime").TimestampOK(); ok {
				s.at = bson.Timestamp{T: ts, I: i}
			}
			continue
		}
		switch {
		case s.cs.Err() != nil:
			return nil, nil, conn.Classify("watch", s.cs.Err())
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case s.cs.ID() == 0:
			// The server ended the stream after dropDatabase; its event has broken every trail.
			if t.ended {
				now, broken := t.result()
				return now, broken, nil
			}
			return nil, nil, fmt.Errorf("watch: %w: the server closed the stream", record.ErrBroken)
		}
		s.advance()
	}
	now, broken := t.result()
	return now, broken, nil
}

// movedPipeline selects the events that create, remove or replace collections. The server finds
// them by their type, so a long history is read quickly.
func movedPipeline() mongo.Pipeline {
	return mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "operationType", Value: bson.D{{Key: "$in", Value: bson.A{
			"create", "drop", "rename", "reshardCollection", "dropDatabase", "invalidate",
		}}}}}}},
		{{Key: "$project", Value: bson.D{
			{Key: "operationType", Value: 1},
			{Key: "ns.coll", Value: 1},
			{Key: "to.coll", Value: 1},
			{Key: "collectionUUID", Value: 1},
			{Key: "clusterTime", Value: 1},
			{Key: "operationDescription.reshardUUID", Value: 1},
			{Key: "operationDescription.dropTarget", Value: 1},
			{Key: "operationDescription.validator", Value: 1},
		}}},
	}
}

// trail follows the collections of kinds through the events of a stream.
type trail struct {
	kinds  []*trailed
	byID   map[string]*trailed // every UUID that a kind's collection had
	byKind map[string]*trailed
	// occupied has the UUIDs of the empty collections that keep a name from a kind since an aborted
	// attempt. The cluster moves them too.
	occupied map[string]bool
	ended    bool
}

// trailed is one kind. now is the UUID of its collection after the events so far.
type trailed struct {
	tok    record.Token
	now    string
	broken string // the reason why no collection counts as the kind's own; empty: none
}

func newTrail(toks record.Tokens) *trail {
	t := &trail{byID: map[string]*trailed{}, byKind: map[string]*trailed{}, occupied: map[string]bool{}}
	for _, tok := range toks {
		if tok.ID == "" {
			continue
		}
		k := &trailed{tok: tok, now: tok.ID}
		t.kinds = append(t.kinds, k)
		t.byID[tok.ID], t.byKind[tok.Kind] = k, k
	}
	return t
}

// named returns the kind that a collection of that name may belong to, or nil.
func (t *trail) named(coll string) *trailed {
	if kind, _, hidden := record.KindOfPhysical(coll); hidden {
		return t.byKind[kind]
	}
	if k := t.byKind[coll]; k != nil && k.tok.Fixed {
		return k
	}
	return nil
}

// event follows one event. After a reason to doubt a kind, nothing mends it: a collection that was
// away may have missed writes.
func (t *trail) event(raw bson.Raw) {
	op, _ := raw.Lookup("operationType").StringValueOK()
	coll, _ := rawdoc.Lookup(raw, "ns", "coll").StringValueOK()
	id := uuidAt(raw, "collectionUUID")
	switch op {
	case "create":
		options, _ := raw.Lookup("operationDescription").DocumentOK()
		if conn.OccupiedBy(options) != "" {
			t.occupied[id] = true
		}
		// A move creates the new collection while the old one still has the name.
		if k := t.named(coll); k != nil && !t.occupied[id] {
			t.becomes(k, id)
		}
	case "reshardCollection":
		is := uuidAt(raw, "operationDescription", "reshardUUID")
		k := t.byID[id]
		if k == nil {
			k = t.byID[is] // the position is from before an earlier move of it
		}
		switch {
		case t.occupied[id] || t.occupied[is]:
			t.occupied[is] = true
		case k != nil:
			t.byID[id] = k
			t.becomes(k, is)
		case t.named(coll) != nil:
			t.named(coll).breaks("another collection with its name was resharded or moved")
		}
	case "drop":
		// The drop of any collection that was ever the kind's, also of a copy that a failed move left.
		if k := t.byID[id]; k != nil {
			k.breaks(coll + " was dropped")
		}
	case "rename":
		to, _ := rawdoc.Lookup(raw, "to", "coll").StringValueOK()
		if k := t.byID[id]; k != nil && t.named(to) != k {
			k.breaks(coll + " was renamed to " + to)
		}
		if k := t.byID[uuidAt(raw, "operationDescription", "dropTarget")]; k != nil {
			k.breaks("another collection, " + coll + ", was renamed to " + to)
		}
		if k := t.named(to); k != nil && t.byID[id] != k {
			k.breaks("another collection, " + coll + ", was renamed to " + to)
		}
	case "dropDatabase", "invalidate":
		t.ended = true
		for _, k := range t.kinds {
			k.breaks("the database was dropped")
		}
	}
}

// becomes notes the next UUID of a kind's collection.
func (t *trail) becomes(k *trailed, id string) {
	if id == "" {
		k.breaks("an event has no identity of its collection")
		return
	}
	k.now, t.byID[id] = id, k
}

func (k *trailed) breaks(why string) {
	if k.broken == "" {
		k.broken = why
	}
}

func (t *trail) result() (now record.Tokens, broken map[string]string) {
	now, broken = record.Tokens{}, map[string]string{}
	for _, k := range t.kinds {
		if k.broken != "" {
			broken[k.tok.Kind] = k.broken
			continue
		}
		tok := k.tok
		tok.ID = k.now
		now[tok.Kind] = tok
	}
	return now, broken
}

// uuidAt returns a UUID of an event as a token has it, or "".
func uuidAt(raw bson.Raw, path ...string) string {
	_, data, _ := rawdoc.Lookup(raw, path...).BinaryOK()
	return hex.EncodeToString(data)
}
