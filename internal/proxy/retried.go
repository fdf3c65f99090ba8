package proxy

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/upstream"
)

// A driver that lost the answer to a retryable write sends it again with the same number of its session,
// perhaps through another proxy, and perhaps after a switch to another cluster. A cluster that has not
// seen the number would execute the write for a second time. So before a session's first write in a
// cluster, the proxy asks the other clusters for the number of the session's last write there.
//
// A number of a session grows, and it is asked for once after each move: the fence keeps the number of
// the left cluster as it is.

// retried knows, for each session, the last write that it made in another cluster than the present one.
type retried struct {
	mu   sync.Mutex
	at   *upstream.Cluster // the present one
	last map[string]lastWrite
}

// lastWrite is the last retryable write of a session in a cluster.
type lastWrite struct {
	cluster *upstream.Cluster
	number  int64 // 0: it made none
	place   bson.Timestamp
}

// mostSessions bounds the sessions that are known. Beyond it they are asked for again.
const mostSessions = 200_000

// look finds out whether another cluster has made a write, or a part of it. It returns the reply if
// nothing is left to do. Otherwise rest knows what is left.
func (r *retried) look(ctx context.Context, p *Proxy, at place, c command, rest *batch) (bsoncore.Document, error) {
	if !c.retryable || c.session == "" {
		return nil, nil
	}
	clusters := p.clusters()
	if len(clusters) < 2 {
		return nil, nil
	}
	r.mu.Lock()
	if r.at != at.cluster || len(r.last) > mostSessions {
		r.at, r.last = at.cluster, map[string]lastWrite{}
	}
	last, known := r.last[c.session]
	r.mu.Unlock()
	if !known {
		for _, other := range clusters {
			if other == at.cluster {
				continue
			}
			one, err := lastOf(ctx, other, c.session)
			if err != nil {
				return nil, fmt.Errorf("whether this write was made before the switch: %w", err)
			}
			if one.number > last.number {
				last = one
			}
		}
		r.mu.Lock()
		if r.at == at.cluster {
			r.last[c.session] = last
		}
		r.mu.Unlock()
	}
	switch {
	case c.number > last.number:
		return nil, nil
	case c.number < last.number:
		return failure(codeTransactionTooOld, fmt.Sprintf("the session has made write %d already", last.number)), nil
	default:
		return executed(ctx, last, c, rest)
	}
}

// lastOf returns the last write of a session in a cluster.
func lastOf(ctx context.Context, cluster *upstream.Cluster, session string) (last lastWrite, err error) {
	id, err := hex.DecodeString(session)
	if err != nil {
		return last, err
	}
	table := cluster.Client().Database("config").Collection("transactions", options.Collection().SetReadConcern(readconcern.Majority()))
	// A session has one entry for each user that used its id.
	found, err := table.Find(ctx, bson.D{{Key: "_id.id", Value: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id}}})
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
