package conn

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/wire"
)

// Through mongos a change arrives only once every shard has written something later, because only
// then no shard can have an earlier change. An idle shard writes a no-op every 10 s. Without help,
// each change, each marker of a fence and each proof would wait that long. A waiting stream
// therefore makes all shards write. It appends a note to the oplog of each. Without the privilege
// appendOplogNote it sends a read that asks every shard for a time it has not reached, and the
// server then writes its no-op at once.

// The pulse of a waiting stream. It slows down while nothing arrives, so that an idle service
// writes one small entry a second. The first change makes it fast again.
const (
	pulseFirst = 50 * time.Millisecond
	pulseMost  = time.Second
	// ShardedWait is streamWait behind mongos, which learns only at the end of a shard's wait how
	// far that shard is.
	ShardedWait = 50 * time.Millisecond
)

// pulse limits how often the shards are made to write, for all streams of a namespace.
type pulse struct {
	mu     sync.Mutex
	last   time.Time
	every  time.Duration
	noNote bool // notes are not permitted or not supported
}

// due reports whether it is time for the next pulse, and counts it as done.
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

// Quicken makes the next pulse come soon, because changes are expected.
func (p *pulse) Quicken() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.every = pulseFirst
}

func (p *pulse) withoutNote() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noNote = true
}

// Beat makes every shard write something if a pulse is due. A failure is only logged: the shards'
// own no-ops come later anyway.
func (n *Conn) Beat(ctx context.Context) {
	due, noNote := n.Pulse.due(time.Now())
	if !due {
		return
	}
	if err := n.pushShards(ctx, noNote); err != nil && ctx.Err() == nil {
		n.Log.Debug("cannot make the shards write; changes wait for the no-ops of the shards", zap.Error(err))
	}
}

func (n *Conn) pushShards(ctx context.Context, noNote bool) error {
	if !noNote {
		err := n.AppendNote(ctx, "pulse of "+n.Name, bson.D{{Key: "w", Value: 1}}).Err()
		if !lacksNotes(err) {
			return err
		}
		// Remember it, or each pulse would fail first.
		n.Pulse.withoutNote()
		n.Log.Info("the privilege appendOplogNote on the cluster is missing; reads advance the changes through mongos instead, which takes longer",
			zap.String("location", n.location))
	}
	hello, err := n.Hello(ctx)
	if err != nil {
		return err
	}
	t, i, ok := rawdoc.Lookup(hello, "$clusterTime", "clusterTime").TimestampOK()
	if !ok {
		return fmt.Errorf("make shards write: the server returns no cluster time")
	}
	return n.tellShards(ctx, bson.Timestamp{T: t, I: i}, true)
}

// tellShards sends every shard a command with the cluster time, as opening a stream does. Each
// later write of a shard then has a later time. With reach it also waits until a majority of each
// shard has reached the time; an idle shard writes a no-op for that.
func (n *Conn) tellShards(ctx context.Context, at bson.Timestamp, reach bool) error {
	concern := bson.D{{Key: "level", Value: "majority"}}
	if reach {
		concern = append(concern, bson.E{Key: "afterClusterTime", Value: at})
	}
	raw, err := n.DB.RunCommand(ctx, bson.D{
		{Key: "aggregate", Value: 1},
		{Key: "pipeline", Value: bson.A{bson.D{{Key: "$changeStream", Value: bson.D{{Key: "startAtOperationTime", Value: at}}}}}},
		{Key: "cursor", Value: bson.D{{Key: "batchSize", Value: 0}}},
		{Key: "readConcern", Value: concern},
	}).Raw()
	if err != nil {
		return Classify("send shards the time", err)
	}
	// Opening the stream was enough; nobody reads its cursor.
	if id, ok := rawdoc.Lookup(raw, "cursor", "id").AsInt64OK(); ok && id != 0 {
		n.KillCursor(ctx, wire.Place{Coll: "$cmd.aggregate"}, id)
	}
	return nil
}
