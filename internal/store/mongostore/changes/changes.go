package changes

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

	"dbcontroller.dev/internal/base/closing"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// Feed follows the changes of a database.
type Feed struct{ *conn.Conn }

// New returns the changes of a connection's database.
func New(c *conn.Conn) *Feed { return &Feed{Conn: c} }

const (
	streamWait  = time.Second // wait of a getMore without events
	streamBatch = 2000        // changes of a getMore, and of a ChangeBatch before its last commit
	// fullReply is the size in bytes from which a reply may have ended for lack of room. The server
	// sends at most 16 MiB, and an event needs three times its _id.
	fullReply = 4 << 20
)

// stream is a change stream of a database that returns keys only. A position is a cluster time,
// from which the stream resumes inclusively. Resume tokens would distinguish the changes of one
// cluster time, and positions ordered by At could then lose one. As a consequence, a resumed stream
// can repeat the changes of one cluster time.
type stream struct {
	cs    *mongo.ChangeStream
	beat  func(context.Context) // behind mongos: makes the shards write; see pulse.go
	got   func()                // behind mongos: called when changes arrive
	kinds map[string]bool       // name -> fixed
	away  map[string]string     // fixed kind -> UUID of its collection, while that has a hidden name
	at    bson.Timestamp        // cluster time of the latest event or position
	err   error                 // final error, returned by every later Next
	ahead bool                  // cs.Current is not delivered yet
	most  int                   // bytes of a batch at most
	// follower is set in a stream of Follow, which leaves kinds and away nil.
	follower *follower
	reply    replySize
}

// replySize counts the events and bytes received of one reply of the server.
type replySize struct{ events, bytes int }

// full reports whether the reply may have ended for lack of room.
func (r replySize) full() bool { return r.events >= streamBatch || r.bytes >= fullReply }

var _ record.Stream = (*stream)(nil)

// Watch opens the changes of kinds after a position. It watches the whole database, because a
// stream on one collection ends at a rename. The caller closes the stream.
func (n *Feed) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	if from.IsZero() {
		return nil, errors.New("watch: no position")
	}
	s := &stream{kinds: make(map[string]bool, len(kinds)), away: make(map[string]string), at: conn.TimestampOf(from.At), most: record.CommitBytes}
	for _, k := range kinds {
		s.kinds[k.Name] = k.Fixed
	}
	mongos, err := n.IsMongos(ctx)
	if err != nil {
		return nil, conn.Classify("watch "+n.Name, err)
	}
	wait := streamWait
	if mongos {
		s.beat, s.got, wait = n.Beat, n.Pulse.Quicken, conn.ShardedWait
	}
	batch := int32(streamBatch)
	if !slices.ContainsFunc(kinds, func(k record.KindSpec) bool { return !record.IsScratch(k.Name) }) {
		// For scratch collections, one event is enough. A larger reply would include all that a
		// copy inserts meanwhile, and might never end.
		batch = 1
	}
	start := s.at
	opts := options.ChangeStream().
		SetStartAtOperationTime(&start).
		SetShowExpandedEvents(true). // collMod is a fence of the validator class
		SetMaxAwaitTime(wait).
		SetBatchSize(batch)
	cs, err := n.DB.Watch(ctx, streamPipeline(kinds), opts)
	if err != nil {
		return nil, conn.Classify("watch "+n.Name, err)
	}
	s.cs = cs
	return s, nil
}

// patternBytes bounds the names in one pattern. MongoDB 8.2 takes 16384 bytes for a pattern.
const patternBytes = 15 << 10

// hiddenNames returns patterns that match the hidden names of kinds. It returns as few as possible,
// because the server tries each pattern on each change.
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
		// The server limits the length of one pattern.
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

// Fields that streamPipeline computes: the collection of a change, and its new name in a rename.
const (
	nameField    = "dbcName"
	newNameField = "dbcNewName"
)

// streamPipeline selects the events that concern the kinds, and projects them to their keys.
//
// The match uses fields that the pipeline computes. The server rewrites a match on ns.coll into one
// on oplog entries, and there it compiles each pattern again for each entry. With a thousand kinds
// a change took twelve times as long as with one, and the marker of a fence was late by as much
// (BenchmarkWatchManyKinds).
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
			// A rename to a watched name matters as much as one from it.
			bson.D{{Key: newNameField, Value: in}},
			bson.D{{Key: "operationType", Value: bson.D{{Key: "$in", Value: bson.A{"dropDatabase", "invalidate"}}}}},
			// Select only marks of write blocks. Other fences have markers of their own, and a mark
			// that is confirmed again late would hide a later one.
			bson.D{
				{Key: nameField, Value: conn.MarksCollection},
				{Key: "documentKey._id", Value: bson.D{{Key: "$in", Value: marks}}},
				{Key: "$or", Value: bson.A{
					bson.D{{Key: "fullDocument." + conn.MarkBlocked, Value: exists}},
					bson.D{{Key: "updateDescription.updatedFields." + conn.MarkBlocked, Value: exists}},
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

// Next returns the changes that the server has sent, or waits about a second for some. A batch ends
// where the cluster time changes, because all changes of a transaction have its commit time. The
// server ends a reply within one cluster time only if the reply is full. The first event of the
// next reply then shows whether the commit goes on.
//
// An empty batch still moves Pos forward. ErrHistoryLost and ErrBroken end the stream.
func (s *stream) Next(ctx context.Context) (record.ChangeBatch, error) {
	if s.err != nil {
		return record.ChangeBatch{}, s.err
	}
	// The driver returns the rest of a reply without a look at ctx.
	if err := ctx.Err(); err != nil {
		return record.ChangeBatch{}, fmt.Errorf("watch: %w", err)
	}
	var batch record.ChangeBatch
	for size, enough := 0, false; s.ahead || s.tryNext(ctx); {
		// Keep an event of a later commit for the next call; a batch never splits a commit.
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
			// Deliver the changes before the error first. The next call returns the error.
			s.err = err
			break
		}
		if ok {
			batch.Changes = append(batch.Changes, change)
			size += change.Size()
		}
		last := s.cs.RemainingBatchLength() == 0
		// A full reply may have cut a commit, so read on, but not beyond the byte limit.
		if last && !s.mayBeCut() || size >= s.most {
			break // the next TryNext would wait for the server
		}
		enough = len(batch.Changes) >= streamBatch || len(batch.Changes) > 0 && (enough || last)
	}
	if err := s.cs.Err(); err != nil && s.err == nil {
		err = conn.Classify("watch", err)
		// Every stream from this position would fail, so this one ends for good.
		if errors.Is(err, record.ErrHistoryLost) {
			s.err = err
		}
		// The caller opens the stream again at its last position, so the changes are not lost.
		if s.err == nil || len(batch.Changes) == 0 {
			return record.ChangeBatch{}, err
		}
	}
	// Without changes, only the server's high-water mark shows progress.
	if len(batch.Changes) == 0 {
		// A closed cursor would look like an idle one for ever.
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
	batch.Pos = record.Position{At: conn.VersionOf(s.at)}
	return batch, nil
}

// mayBeCut reports whether the reply may have ended within a cluster time. If the resume token
// differs from the last event's, the server has read further, so nothing was cut.
func (s *stream) mayBeCut() bool {
	return s.reply.full() && bytes.Equal(s.cs.ResumeToken(), s.cs.Current.Lookup("_id").Value)
}

// sameTime reports whether an event has the cluster time of the one before.
func (s *stream) sameTime(event bson.Raw) bool {
	t, i, ok := event.Lookup("clusterTime").TimestampOK()
	return ok && s.at.Equal(bson.Timestamp{T: t, I: i})
}

// tryNext waits about a second for an event. Behind mongos it waits in short steps and makes the
// shards write in between.
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
		// TryNext returned without an event; the loop ends only for a reason to stop.
		if s.cs.Err() != nil || s.cs.ID() == 0 || ctx.Err() != nil || time.Now().After(end) {
			return false
		}
		// mongos delivers an event only after every shard has reported a later time.
		s.beat(ctx)
	}
}

// advance moves the position of an idle stream to the server's high-water mark.
func (s *stream) advance() {
	if at, ok := conn.TokenTime(s.cs.ResumeToken()); ok && at.After(s.at) {
		s.at = at
	}
}

// Close closes the server's cursor. Next must not be called afterwards.
func (s *stream) Close(ctx context.Context) error {
	if err := s.cs.Close(ctx); err != nil {
		return fmt.Errorf("close stream: %w", err)
	}
	return nil
}

// UpToNow reads all changes that a stream has at present, without waiting for more, and closes it.
func UpToNow(ctx context.Context, opened record.Stream) (all record.ChangeBatch, err error) {
	defer closing.Bounded(ctx, opened.Close) //nolint:errcheck // the server ends it by itself
	s := opened.(*stream)                    //nolint:forcetypeassert // our own
	for {
		batch, err := s.Next(ctx) // first reply only, so this does not wait
		if err != nil {
			return record.ChangeBatch{}, err
		}
		all.Changes, all.Wall = append(all.Changes, batch.Changes...), max(all.Wall, batch.Wall)
		// Nothing is left to read, so the stream has reached the present.
		if !s.ahead && s.cs.RemainingBatchLength() == 0 && !s.reply.full() {
			s.advance()
			all.Pos = record.Position{At: conn.VersionOf(s.at)}
			return all, nil
		}
	}
}
