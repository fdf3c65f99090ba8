package mongostore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/record"
)

const (
	streamWait  = time.Second // of a getMore that finds nothing
	streamBatch = 2000        // changes of one getMore, and of one ChangeBatch but for a commit at its end
	// fullReply is how many bytes of events make a reply that may have ended for want of
	// room. The server sends 16 MiB at most, and an event takes three times its _id.
	fullReply = 4 << 20
)

// stream is a database stream of keys. A place in it is a cluster time alone, from which
// it is resumed inclusively: a resume token would distinguish the changes of one cluster
// time, and positions that are ordered by At could then lose one. The price is that the
// changes of one cluster time may come again.
type stream struct {
	cs    *mongo.ChangeStream
	beat  func(context.Context) // behind mongos: makes the shards write; see pulse.go
	got   func()                // behind mongos: called with changes
	kinds map[string]bool       // name -> fixed
	away  map[string]string     // fixed kind -> identity of its collection, while that has a hidden name
	at    bson.Timestamp        // of the latest event or position
	err   error                 // that ended the stream for good
	ahead bool                  // cs.Current is not delivered yet
	most  int                   // bytes of a batch
	// follower is set in a stream of Follow; kinds and away are not.
	follower *follower
	reply    replySize
}

// replySize is what was taken of one reply of the server.
type replySize struct{ events, bytes int }

// full reports whether the server may have had more to send.
func (r replySize) full() bool { return r.events >= streamBatch || r.bytes >= fullReply }

var _ record.Stream = (*stream)(nil)

// Watch opens the changes of kinds from a position on. It watches the whole database,
// because a collection's own stream ends with a rename.
func (n *Namespace) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	if from.IsZero() {
		return nil, errors.New("watch: no position")
	}
	s := &stream{kinds: make(map[string]bool, len(kinds)), away: make(map[string]string), at: timestampOf(from.At), most: record.CommitBytes}
	for _, k := range kinds {
		s.kinds[k.Name] = k.Fixed
	}
	mongos, err := n.isMongos(ctx)
	if err != nil {
		return nil, classify("watch "+n.name, err)
	}
	wait := streamWait
	if mongos {
		s.beat, s.got, wait = n.beat, n.pulse.quicken, shardedWait
	}
	batch := int32(streamBatch)
	if !slices.ContainsFunc(kinds, func(k record.KindSpec) bool { return !record.IsScratch(k.Name) }) {
		// That anything is seen is what is asked of scratch collections. A reply with room for
		// more would go on through all that a copy inserts meanwhile, and may never reach its end.
		batch = 1
	}
	start := s.at
	opts := options.ChangeStream().
		SetStartAtOperationTime(&start).
		SetShowExpandedEvents(true). // collMod is a fence of the validator class
		SetMaxAwaitTime(wait).
		SetBatchSize(batch)
	cs, err := n.db.Watch(ctx, streamPipeline(kinds), opts)
	if err != nil {
		return nil, classify("watch "+n.name, err)
	}
	s.cs = cs
	return s, nil
}

// patternBytes bounds the names in a pattern: MongoDB 8.2 takes 16384 bytes in all.
const patternBytes = 15 << 10

// hiddenNames are patterns of the hidden names of kinds, as few as there can be: the server
// tries each of them on each change.
func hiddenNames(kinds []record.KindSpec) (patterns bson.A) {
	patterns = bson.A{}
	var names strings.Builder
	end := func() {
		if names.Len() > 0 {
			patterns = append(patterns, bson.Regex{Pattern: `^(?:` + names.String() + `)\.n[0-9]+$`})
		}
		names.Reset()
	}
	for _, k := range kinds {
		name := regexp.QuoteMeta(k.Name)
		if names.Len()+len(name) > patternBytes {
			end()
		}
		if names.Len() > 0 {
			names.WriteByte('|')
		}
		names.WriteString(name)
	}
	end()
	return patterns
}

// Fields that streamPipeline computes: the collection of a change, and the name it gets.
const (
	nameField    = "dbcName"
	newNameField = "dbcNewName"
)

// streamPipeline lets through what concerns the kinds, and of that the keys alone.
//
// The names are matched in fields that the pipeline computes. A match of ns.coll itself the
// server turns into one of the oplog's entries, in which it compiles each pattern anew for each
// entry: with a thousand kinds a change took twelve times as long as with one, and the marker
// of a fence came late by as much (BenchmarkWatchManyKinds).
func streamPipeline(kinds []record.KindSpec) mongo.Pipeline {
	names := hiddenNames(kinds)
	var fixed []record.KindSpec
	for _, k := range kinds {
		if k.Fixed {
			fixed = append(fixed, k)
			names = append(names, k.Name)
		}
	}
	marks := hiddenNames(fixed)
	exists := bson.D{{Key: "$exists", Value: true}}
	in := bson.D{{Key: "$in", Value: names}}
	return mongo.Pipeline{
		{{Key: "$addFields", Value: bson.D{
			{Key: nameField, Value: bson.D{{Key: "$concat", Value: bson.A{"$ns.coll"}}}},
			{Key: newNameField, Value: bson.D{{Key: "$concat", Value: bson.A{"$to.coll"}}}},
		}}},
		{{Key: "$match", Value: bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: nameField, Value: in}},
			bson.D{{Key: newNameField, Value: in}},
			bson.D{{Key: "operationType", Value: bson.D{{Key: "$in", Value: bson.A{"dropDatabase", "invalidate"}}}}},
			// Only the marks of write blocks: the others have markers of their own, and a
			// mark that is confirmed again late would hide a later one.
			bson.D{
				{Key: nameField, Value: marksCollection},
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

// Next returns what the server has sent, or waits for it about a second. A batch ends where
// the cluster time does: all changes of a transaction have one, that of its commit. The
// server ends a reply within one only when the reply is full; then the first event of the
// next reply shows it.
func (s *stream) Next(ctx context.Context) (record.ChangeBatch, error) {
	if s.err != nil {
		return record.ChangeBatch{}, s.err
	}
	var batch record.ChangeBatch
	for size, enough := 0, false; s.ahead || s.tryNext(ctx); {
		s.ahead = enough && !s.sameTime(s.cs.Current)
		if s.ahead {
			break
		}
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
			size += change.Size()
		}
		last := s.cs.RemainingBatchLength() == 0
		if last && !s.mayBeCut() || size >= s.most {
			break // the next TryNext would wait for the server
		}
		enough = len(batch.Changes) >= streamBatch || len(batch.Changes) > 0 && (enough || last)
	}
	if err := s.cs.Err(); err != nil && s.err == nil {
		err = classify("watch", err)
		if errors.Is(err, record.ErrHistoryLost) {
			s.err = err
		}
		if s.err == nil || len(batch.Changes) == 0 {
			return record.ChangeBatch{}, err
		}
	}
	if len(batch.Changes) == 0 {
		if s.err == nil && s.cs.ID() == 0 {
			s.err = fmt.Errorf("watch: %w: the server closed the stream", record.ErrBroken)
			return record.ChangeBatch{}, s.err
		}
		s.advance()
		batch.Wall = 0
	}
	if s.follower != nil {
		s.follower.settle(&batch)
	}
	batch.Pos = record.Position{At: versionOf(s.at)}
	return batch, nil
}

// mayBeCut reports whether the reply that ends here may have ended within a cluster time. A
// token that is not that of the last event shows that the server has read further.
func (s *stream) mayBeCut() bool {
	return s.reply.full() && bytes.Equal(s.cs.ResumeToken(), s.cs.Current.Lookup("_id").Value)
}

// sameTime reports whether an event is of the cluster time of the one before.
func (s *stream) sameTime(event bson.Raw) bool {
	t, i, ok := event.Lookup("clusterTime").TimestampOK()
	return ok && s.at.Equal(bson.Timestamp{T: t, I: i})
}

// tryNext waits about a second for an event. Behind mongos it does so in short steps and
// makes the shards write meanwhile.
func (s *stream) tryNext(ctx context.Context) bool {
	if s.cs.RemainingBatchLength() == 0 {
		s.reply = replySize{}
	}
	if !s.tryReply(ctx) {
		return false
	}
	s.reply.events++
	s.reply.bytes += len(s.cs.Current)
	return true
}

func (s *stream) tryReply(ctx context.Context) bool {
	if s.beat == nil {
		return s.cs.TryNext(ctx)
	}
	for end := time.Now().Add(streamWait); ; {
		if s.cs.TryNext(ctx) {
			s.got()
			return true
		}
		if s.cs.Err() != nil || s.cs.ID() == 0 || ctx.Err() != nil || time.Now().After(end) {
			return false
		}
		s.beat(ctx)
	}
}

// advance moves the position of a stream without changes to the server's high-water mark.
func (s *stream) advance() {
	if at, ok := tokenTime(s.cs.ResumeToken()); ok && at.After(s.at) {
		s.at = at
	}
}

// Close ends the stream.
func (s *stream) Close(ctx context.Context) error {
	if err := s.cs.Close(ctx); err != nil {
		return fmt.Errorf("close stream: %w", err)
	}
	return nil
}
