package mongostore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"
)

// Mongos delivers a change once every shard has written something later, because only
// then it is certain that none has an earlier one. A shard that has nothing to do writes
// a no-op every 10 s, so that without our help each change, each marker of a fence and
// each proof would wait that long. So a stream that waits makes all shards write: a note
// in the oplog of each, or, where the user lacks the privilege appendOplogNote, a read
// that asks every shard for a time which it has not reached, and which makes the server
// write its no-op at once.

// Bounds of the pulse of a stream that waits. It slows down while nothing comes, so that
// an idle service writes one small entry a second, and is at its fastest again with the
// first change.
const (
	pulseFirst = 50 * time.Millisecond
	pulseMost  = time.Second
	// shardedWait is streamWait behind mongos, which learns only at the end of a shard's
	// wait how far that shard has come.
	shardedWait = 50 * time.Millisecond
)

// pulse paces what makes the shards write, for all streams of a namespace together.
type pulse struct {
	mu     sync.Mutex
	last   time.Time
	every  time.Duration
	noNote bool // the user may not, or the server cannot, append notes
}

// due reports whether it is time for the next one, which it then counts as done.
func (p *pulse) due(now time.Time) (due, noNote bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.every = max(p.every, pulseFirst)
	if now.Sub(p.last) < p.every {
		return false, p.noNote
	}
	p.last, p.every = now, min(2*p.every, pulseMost)
	return true, p.noNote
}

// quicken makes the next one come soon: changes are to be expected.
func (p *pulse) quicken() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.every = pulseFirst
}

func (p *pulse) withoutNote() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noNote = true
}

// beat makes every shard write something, if it is time to. A failure is not worth more
// than a line in the log: what a shard writes by itself comes later.
func (n *Namespace) beat(ctx context.Context) {
	due, noNote := n.pulse.due(time.Now())
	if !due {
		return
	}
	if err := n.pushShards(ctx, noNote); err != nil && ctx.Err() == nil {
		n.log.Debug("cannot make the shards write; changes wait for their own no-ops", zap.Error(err))
	}
}

func (n *Namespace) pushShards(ctx context.Context, noNote bool) error {
	if !noNote {
		err := n.appendNote(ctx, "pulse of "+n.name, bson.D{{Key: "w", Value: 1}}).Err()
		if !lacksNotes(err) {
			return err
		}
		n.pulse.withoutNote()
		n.log.Info("the privilege appendOplogNote on the cluster is missing; changes through mongos are made to flow by reads, which take longer",
			zap.String("location", n.location))
	}
	hello, err := n.hello(ctx)
	if err != nil {
		return err
	}
	t, i, ok := hello.Lookup("$clusterTime", "clusterTime").TimestampOK()
	if !ok {
		return fmt.Errorf("make shards write: the server returns no cluster time")
	}
	return n.tellShards(ctx, bson.Timestamp{T: t, I: i}, true)
}

// tellShards sends every shard a command that carries the cluster time, as opening a
// stream does: what a shard writes afterwards is later. With reach it returns when a
// majority of each has reached the time; a shard that has not writes a no-op for that.
func (n *Namespace) tellShards(ctx context.Context, at bson.Timestamp, reach bool) error {
	concern := bson.D{{Key: "level", Value: "majority"}}
	if reach {
		concern = append(concern, bson.E{Key: "afterClusterTime", Value: at})
	}
	raw, err := n.db.RunCommand(ctx, bson.D{
		{Key: "aggregate", Value: 1},
		{Key: "pipeline", Value: bson.A{bson.D{{Key: "$changeStream", Value: bson.D{{Key: "startAtOperationTime", Value: at}}}}}},
		{Key: "cursor", Value: bson.D{{Key: "batchSize", Value: 0}}},
		{Key: "readConcern", Value: concern},
	}).Raw()
	if err != nil {
		return classify("send shards the time", err)
	}
	if id, ok := raw.Lookup("cursor", "id").AsInt64OK(); ok && id != 0 {
		n.killCursor(ctx, place{coll: "$cmd.aggregate"}, id)
	}
	return nil
}
