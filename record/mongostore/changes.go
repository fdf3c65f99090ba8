package mongostore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller/record"
)

const (
	streamWait  = time.Second // of a getMore that finds nothing
	streamBatch = 2000        // changes of one ChangeBatch and of one getMore, at most
)

// stream is a database stream of keys. A place in it is a cluster time alone, from which
// it is resumed inclusively: a resume token would tell apart the changes of one cluster
// time, and positions that are ordered by At could then lose one. The price is that the
// changes of one cluster time may come again.
type stream struct {
	cs    *mongo.ChangeStream
	kinds map[string]bool   // name -> fixed
	away  map[string]string // fixed kind -> identity of its collection, while that has a hidden name
	at    bson.Timestamp    // of the latest position delivered
	err   error             // that ended the stream for good
}

var _ record.Stream = (*stream)(nil)

// Watch opens the changes of kinds from a position on. It watches the whole database,
// because a collection's own stream ends with a rename.
func (n *Namespace) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	if from.IsZero() {
		return nil, errors.New("watch: no position")
	}
	s := &stream{kinds: make(map[string]bool, len(kinds)), away: make(map[string]string), at: timestampOf(from.At)}
	for _, k := range kinds {
		s.kinds[k.Name] = k.Fixed
	}
	start := s.at
	opts := options.ChangeStream().
		SetStartAtOperationTime(&start).
		SetShowExpandedEvents(true). // collMod is a fence of the validator class
		SetMaxAwaitTime(streamWait).
		SetBatchSize(streamBatch)
	cs, err := n.db.Watch(ctx, streamPipeline(kinds), opts)
	if err != nil {
		return nil, classify("watch "+n.name, err)
	}
	s.cs = cs
	return s, nil
}

// streamPipeline lets through what concerns the kinds, and of that the keys alone.
func streamPipeline(kinds []record.KindSpec) mongo.Pipeline {
	names := make(bson.A, 0, 2*len(kinds))
	marks := bson.A{} // of fixed kinds
	for _, k := range kinds {
		hidden := bson.Regex{Pattern: `^` + regexp.QuoteMeta(k.Name) + `\.n[0-9]+$`}
		if k.Fixed {
			names = append(names, k.Name)
			marks = append(marks, hidden)
		}
		names = append(names, hidden)
	}
	exists := bson.D{{Key: "$exists", Value: true}}
	in := bson.D{{Key: "$in", Value: names}}
	return mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: "ns.coll", Value: in}},
			bson.D{{Key: "to.coll", Value: in}},
			bson.D{{Key: "operationType", Value: bson.D{{Key: "$in", Value: bson.A{"dropDatabase", "invalidate"}}}}},
			// Only the marks of write blocks: the others have markers of their own, and a
			// mark that is confirmed again late would hide a later one.
			bson.D{
				{Key: "ns.coll", Value: marksCollection},
				{Key: "documentKey._id", Value: bson.D{{Key: "$in", Value: marks}}},
				{Key: "$or", Value: bson.A{
					bson.D{{Key: "fullDocument." + markBlocked, Value: exists}},
					bson.D{{Key: "updateDescription.updatedFields." + markBlocked, Value: exists}},
				}},
			},
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
		}}},
	}
}

// Next returns what the server has sent, or waits for it about a second.
func (s *stream) Next(ctx context.Context) (record.ChangeBatch, error) {
	if s.err != nil {
		return record.ChangeBatch{}, s.err
	}
	var batch record.ChangeBatch
	for len(batch.Changes) < streamBatch && s.cs.TryNext(ctx) {
		change, ok, err := s.event(s.cs.Current, &batch)
		if err != nil {
			if len(batch.Changes) == 0 {
				s.err = err
				return record.ChangeBatch{}, err
			}
			// What came before it is delivered first.
			s.err = err
			break
		}
		if ok {
			batch.Changes = append(batch.Changes, change)
		}
		if s.cs.RemainingBatchLength() == 0 {
			break // the next TryNext would wait for the server
		}
	}
	if err := s.cs.Err(); err != nil && s.err == nil {
		err = classify("watch", err)
		if errors.Is(err, record.ErrHistoryLost) {
			s.err = err
		}
		return record.ChangeBatch{}, err
	}
	if len(batch.Changes) == 0 {
		if s.err == nil && s.cs.ID() == 0 {
			s.err = fmt.Errorf("watch: %w: the server closed the stream", record.ErrBroken)
			return record.ChangeBatch{}, s.err
		}
		s.advance()
		batch.Wall = 0
	}
	batch.Pos = record.Position{At: versionOf(s.at)}
	return batch, nil
}

// advance moves the position of a stream without changes to the server's high-water mark.
func (s *stream) advance() {
	if at, ok := tokenTime(s.cs.ResumeToken()); ok && at.After(s.at) {
		s.at = at
	}
}

// event reads one event. ok says that change is to be delivered.
func (s *stream) event(raw bson.Raw, batch *record.ChangeBatch) (change record.Change, ok bool, err error) {
	var e struct {
		op, coll, to string
		uuid         string // the collection's identity; a view has none
		id           bson.RawValue
		description  bson.Raw
	}
	elems, err := raw.Elements()
	if err != nil {
		return change, false, fmt.Errorf("watch: %w", err)
	}
	for _, elem := range elems {
		v := elem.Value()
		switch elem.Key() {
		case "operationType":
			e.op, _ = v.StringValueOK()
		case "ns":
			e.coll = lookupString(v, "coll")
		case "to":
			e.to = lookupString(v, "coll")
		case "collectionUUID":
			_, data, _ := v.BinaryOK()
			e.uuid = string(data)
		case "documentKey":
			if doc, ok := v.DocumentOK(); ok {
				e.id = doc.Lookup("_id")
			}
		case "operationDescription":
			e.description, _ = v.DocumentOK()
		case "clusterTime":
			if t, i, ok := v.TimestampOK(); ok {
				s.at = bson.Timestamp{T: t, I: i}
			}
		case "wallTime":
			if ms, ok := v.DateTimeOK(); ok {
				batch.Wall = ms
			}
		}
	}
	if e.coll == marksCollection {
		return s.writeBlock(e.op, e.id)
	}
	kind, current := s.kindOf(e.coll)
	switch e.op {
	case "insert", "update", "replace", "delete":
		if kind == "" || !current {
			return change, false, nil
		}
		if away, ok := s.away[kind]; ok && away != e.uuid {
			return change, false, fmt.Errorf("watch: %w: a fence moved the collection %s away, and another one was made under its name; "+
				"what was written there is not part of the kind", record.ErrBroken, e.coll)
		}
		key, err := record.KeyOf(e.id)
		if err != nil {
			return change, false, fmt.Errorf("watch %s: %w", e.coll, err)
		}
		return record.Change{Kind: kind, Key: key, Delete: e.op == "delete"}, true, nil
	case "rename":
		if s.kinds[e.to] { // given back, or taken by the kind's next collection
			delete(s.away, e.to)
		} else if s.kinds[e.coll] && physicalOf(e.to, e.coll) {
			s.away[e.coll] = e.uuid
		}
		return s.rename(e.coll, e.to)
	case "modify":
		mark := fenceMark(e.description)
		if kind == "" || !current || mark == "" {
			return change, false, nil
		}
		return record.Change{Kind: kind, Marker: mark}, true, nil
	case "drop":
		if kind == "" || !current || e.uuid == "" {
			return change, false, nil
		}
		return change, false, fmt.Errorf("watch: %w: collection %s was dropped, and one made anew under its name is another one: "+
			"abort the upgrade and set the deployment up anew", record.ErrBroken, e.coll)
	case "dropDatabase", "invalidate":
		// A database without any of the kinds: their own drops have come before.
		return change, false, fmt.Errorf("watch: %w: the stream was ended by %s", record.ErrHistoryLost, e.op)
	default:
		// Indexes, sharding and the like do not concern the records.
		return change, false, nil
	}
}

// writeBlock is the marker of a write block: it was written once the block was in force.
func (s *stream) writeBlock(op string, id bson.RawValue) (record.Change, bool, error) {
	mark, ok := id.StringValueOK()
	kind, _, hidden := record.KindOfPhysical(mark)
	if !ok || !hidden || !s.kinds[kind] || op == "delete" {
		return record.Change{}, false, nil
	}
	return record.Change{Kind: kind, Marker: mark}, true, nil
}

// rename tells a fence from what no engine can follow.
func (s *stream) rename(from, to string) (record.Change, bool, error) {
	fromKind, fromCurrent := s.kindOf(from)
	toKind, toCurrent := s.kindOf(to)
	switch {
	case toKind != "" && (fromKind == toKind || physicalOf(to, toKind)):
		return record.Change{Kind: toKind, Marker: to}, true, nil
	case toKind != "" && toCurrent, fromKind != "" && fromCurrent:
		return record.Change{}, false, fmt.Errorf("watch: %w: %s was renamed to %s", record.ErrBroken, from, to)
	default:
		return record.Change{}, false, nil
	}
}

// kindOf returns the watched kind that a collection is or was of. current says that its
// changes are the kind's: those of a fixed-name kind are only made under its own name,
// its other names are hidden ones.
func (s *stream) kindOf(coll string) (kind string, current bool) {
	if fixed, ok := s.kinds[coll]; ok && fixed {
		return coll, true
	}
	kind, _, ok := record.KindOfPhysical(coll)
	if !ok {
		return "", false
	}
	fixed, ok := s.kinds[kind]
	if !ok {
		return "", false
	}
	return kind, !fixed
}

func physicalOf(name, kind string) bool {
	k, _, ok := record.KindOfPhysical(name)
	return ok && k == kind
}

// Close ends the stream.
func (s *stream) Close(ctx context.Context) error {
	if err := s.cs.Close(ctx); err != nil {
		return fmt.Errorf("close stream: %w", err)
	}
	return nil
}

func lookupString(v bson.RawValue, key string) string {
	doc, ok := v.DocumentOK()
	if !ok {
		return ""
	}
	text, _ := doc.Lookup(key).StringValueOK()
	return text
}

// fenceMark finds the mark in what a collMod was described with, empty if it is none.
func fenceMark(description bson.Raw) string {
	values, err := description.Values()
	if err != nil {
		return ""
	}
	for _, v := range values {
		switch v.Type {
		case bson.TypeString:
			if mark, ok := strings.CutPrefix(v.StringValue(), fencePrefix); ok {
				return mark
			}
		case bson.TypeEmbeddedDocument, bson.TypeArray:
			if mark := fenceMark(bson.Raw(v.Value)); mark != "" {
				return mark
			}
		}
	}
	return ""
}
