package fences

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/store/mongostore/conn"
)

// identified is a collection by name and UUID.
type identified struct {
	Name string
	UUID bson.Binary
}

// provenAtOnce bounds the names that one command proves.
const provenAtOnce = 100

// absent returns a filter that matches no document, and an update for it. The update changes
// nothing, but its majority acknowledgement covers everything before it.
func absent() (filter, update bson.D) {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "dbc", Value: bson.NewObjectID()}}}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "dbc", Value: 1}}}}
}

// proveNames checks that collections have their names in every history that can still be
// acknowledged. It returns the error of each collection that does not; a missing or nil entry means
// that it has its name.
func (n *Fences) proveNames(ctx context.Context, cs []identified) (map[string]error, error) {
	if len(cs) > 1 {
		router, err := n.IsMongos(ctx)
		if err != nil {
			return nil, err
		}
		if !router {
			by, err := n.proveTogether(ctx, cs)
			if !conn.HasCode(err, conn.CodeCommandNotFound) { // server older than MongoDB 8.0
				return by, err
			}
		}
	}
	return n.proveEach(ctx, cs), nil
}

// proveEach proves several names with one command each.
func (n *Fences) proveEach(ctx context.Context, cs []identified) map[string]error {
	return byName(cs, func(c identified) string { return c.Name }, func(c identified) error { return n.proveName(ctx, c) })
}

func (n *Fences) proveName(ctx context.Context, c identified) error {
	filter, update := absent()
	return n.DB.RunCommand(ctx, bson.D{
		{Key: "update", Value: c.Name},
		{Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: filter}, {Key: "u", Value: update}}}},
		{Key: "collectionUUID", Value: c.UUID},
		{Key: "writeConcern", Value: conn.MajorityWithin(conn.ConcernWait)},
	}).Err()
}

// proveTogether proves several names with one command.
func (n *Fences) proveTogether(ctx context.Context, cs []identified) (map[string]error, error) {
	// All updates match nothing, so one filter serves them all.
	ops, names := make(bson.A, len(cs)), make(bson.A, len(cs))
	filter, update := absent()
	for i, c := range cs {
		ops[i] = bson.D{{Key: "update", Value: int32(i)}, {Key: "filter", Value: filter}, {Key: "updateMods", Value: update}} //nolint:gosec // hundreds
		names[i] = bson.D{{Key: "ns", Value: n.Name + "." + c.Name}, {Key: "collectionUUID", Value: c.UUID}}
	}
	var reply struct {
		Failed struct {
			First []failedOp `bson:"firstBatch"`
		} `bson:"cursor"`
	}
	// Unordered, so that one lost name does not hide the others.
	err := conn.Decode(n.Admin().RunCommand(ctx, bson.D{
		{Key: "bulkWrite", Value: 1}, {Key: "ops", Value: ops}, {Key: "nsInfo", Value: names},
		{Key: "ordered", Value: false}, {Key: "errorsOnly", Value: true},
		{Key: "writeConcern", Value: conn.MajorityWithin(conn.ConcernWait)},
	}), &reply)
	if err != nil {
		return nil, err
	}
	return failuresOf(cs, reply.Failed.First)
}

// failedOp is the server's report of an operation of a bulkWrite that failed.
type failedOp struct {
	At      int    `bson:"idx"`
	Code    int32  `bson:"code"`
	Message string `bson:"errmsg"`
}

// failuresOf returns the errors of operations by the names of their collections. The reply lists
// failures only; a missing entry is a success.
func failuresOf(cs []identified, failed []failedOp) (map[string]error, error) {
	by := make(map[string]error, len(cs))
	for _, f := range failed {
		// An index that we did not send leaves all outcomes unknown.
		if f.At < 0 || f.At >= len(cs) {
			return nil, fmt.Errorf("the server reports a failure of operation %d of %d", f.At, len(cs))
		}
		by[cs[f.At].Name] = mongo.CommandError{Code: f.Code, Message: f.Message}
	}
	return by, nil
}
