package proxy

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/upstream"
)

// A driver that lost the answer to a retryable write sends it again with the same number of its session,
// perhaps through another proxy, and perhaps after a switch to another cluster. A cluster that has not
// seen the number would execute the write for a second time. So before a session's first write at a place,
// the proxy asks the other clusters for the number of the session's last write there.
//
// A number of a session grows, and it is asked for once after each switch: until the next one, fences keep
// the deployment's writes out of the other clusters.

// retried knows, for each session, the last write that it made in another cluster than the present one.
type retried struct {
	mu    sync.Mutex
	epoch int64 // of the place that last belongs to
	last  map[logical]lastWrite
}

// lastWrite is the last retryable write of a session in a cluster.
type lastWrite struct {
	cluster *upstream.Cluster
	number  int64 // 0: it made none
	place   bson.Timestamp
}

// mostSessions bounds the sessions that are known. Beyond it they are asked for again.
const mostSessions = 200_000

// known returns the noted answer about a session in an epoch.
func (r *retried) known(epoch int64, session logical) (lastWrite, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.last[session]
	return last, ok && r.epoch == epoch
}

// note keeps an answer. It ignores one for an older epoch than the noted one.
func (r *retried) note(epoch int64, session logical, last lastWrite) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil || r.epoch < epoch || len(r.last) > mostSessions {
		r.epoch, r.last = epoch, map[logical]lastWrite{}
	}
	if r.epoch == epoch {
		r.last[session] = last
	}
}

// never is the epoch before the first switch: no other cluster has the data's writes.
const never = 1

// look finds out whether another cluster has made a write, or a part of it. It returns the reply if
// nothing is left to do. Otherwise rest has the statements that are left.
func (d *deployed) look(ctx context.Context, at place, c command, rest *batch) (bsoncore.Document, error) {
	if !c.retryable {
		return nil, nil
	}
	switch sharded, err := at.cluster.Sharded(ctx); {
	case err != nil:
		return nil, err
	// From the first day and not only after a switch, so that nobody begins an upgrade with it.
	case sharded:
		return failure(codeIllegalOperation, noNumbers), nil
	}
	if c.session == "" || len(d.own) < 2 || at.epoch == never {
		return nil, nil
	}
	// By the epoch and not by the cluster: after a switch there and back the cluster is the same.
	last, known := d.retried.known(at.epoch, c.logical())
	if !known {
		bounded, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		for _, other := range d.own {
			if other == at.cluster {
				continue
			}
			one, err := lastOf(bounded, other, c.logical())
			if err != nil {
				return nil, fmt.Errorf("whether this write was made before the switch: %w", err)
			}
			if one.number > last.number {
				last = one
			}
		}
		d.retried.note(at.epoch, c.logical(), last)
	}
	switch {
	case c.number > last.number:
		return nil, nil
	case c.number < last.number:
		return failure(codeTransactionTooOld, fmt.Sprintf("the session has made write %d already", last.number)), nil
	// A late delete passes some fences, and is undone afterwards. It is no answer.
	case c.bypasses() && !d.refusesLate(last.cluster):
		return unknown("the former place of the data has made it, and lets such a write pass also after a switch"), nil
	default:
		return executed(ctx, last, c, rest)
	}
}

// noNumbers refuses a retryable write on a sharded cluster. Each shard knows only its own retryable writes,
// and the next version of a document can be on another shard. That shard would make the write for a second
// time. Drivers recognize the first two words, and advise the same.
const noNumbers = "Transaction numbers do not follow a collection that moves on a sharded cluster: add retryWrites=false to the connection string"

// askTimeout bounds the question to a cluster that the data has left.
const askTimeout = 5 * time.Second

// errSharded means that a cluster does not show its retryable writes: routers hide config.transactions.
var errSharded = errors.New("one of the clusters is sharded: a proxy cannot tell there whether it has made a write already")

// lastOf returns the last write of a session in a cluster.
func lastOf(ctx context.Context, cluster *upstream.Cluster, of logical) (last lastWrite, err error) {
	switch sharded, err := cluster.Sharded(ctx); {
	case err != nil:
		return last, err
	case sharded:
		return last, errSharded
	}
	id, err := hex.DecodeString(of.id)
	if err != nil {
		return last, err
	}
	// A session has one entry for each user that used its id.
	session := bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id}
	entry := bson.D{{Key: "$gte", Value: bson.D{{Key: "id", Value: session}}}, {Key: "$lte", Value: bson.D{{Key: "id", Value: session}, {Key: "uid", Value: bson.MaxKey{}}}}}
	if of.user != nil {
		var own bson.A
		for _, uid := range of.user.as.Owners() {
			own = append(own, bson.D{{Key: "id", Value: session}, {Key: "uid", Value: bson.Binary{Data: uid}}})
		}
		entry = bson.D{{Key: "$in", Value: own}}
	}
	// Linearizable, because a primary that was replaced a moment ago may lack the last writes. The driver
	// adds a time limit from ctx: without a majority such a read would not end.
	found, err := cluster.Client().Database("config").RunCommandCursor(ctx, bson.D{
		{Key: "find", Value: "transactions"},
		{Key: "filter", Value: bson.D{{Key: "_id", Value: entry}}},
		{Key: "readConcern", Value: bson.D{{Key: "level", Value: "linearizable"}}},
	})
	if err != nil {
		return last, err
	}
	var entries []struct {
		Number int64 `bson:"txnNum"`
		Last   struct {
			At bson.Timestamp `bson:"ts"`
		} `bson:"lastWriteOpTime"`
	}
	if err := found.All(ctx, &entries); err != nil {
		return last, err
	}
	for _, e := range entries {
		if e.Number > last.number {
			last = lastWrite{cluster, e.Number, e.Last.At}
		}
	}
	return last, nil
}
