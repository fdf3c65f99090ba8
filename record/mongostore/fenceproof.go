package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// identified is a collection by its name and its identity.
type identified struct {
	name string
	uuid bson.Binary
}

// provenAtOnce is for how many collections one command proves their names.
const provenAtOnce = 100

// absent selects no document, and one field is what an update of it would set: an update that
// finds nothing changes nothing, and its acknowledgement is that of all that came before it.
func absent() (filter, update bson.D) {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "dbc", Value: bson.NewObjectID()}}}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "dbc", Value: 1}}}}
}

// proveNames returns for each name why the collection does not have it, in every history that
// can still be acknowledged; nil: it has.
func (n *Namespace) proveNames(ctx context.Context, cs []identified) (map[string]error, error) {
	if len(cs) > 1 {
		router, err := n.isMongos(ctx)
		if err != nil {
			return nil, err
		}
		if !router {
			by, err := n.proveTogether(ctx, cs)
			if !hasCode(err, codeCommandNotFound) { // before MongoDB 8.0
				return by, err
			}
		}
	}
	return n.proveEach(ctx, cs), nil
}

// proveEach is proveName of several by one command each.
func (n *Namespace) proveEach(ctx context.Context, cs []identified) map[string]error {
	return byName(cs, func(c identified) string { return c.name }, func(c identified) error { return n.proveName(ctx, c) })
}

func (n *Namespace) proveName(ctx context.Context, c identified) error {
	filter, update := absent()
	return n.db.RunCommand(ctx, bson.D{
		{Key: "update", Value: c.name},
		{Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: filter}, {Key: "u", Value: update}}}},
		{Key: "collectionUUID", Value: c.uuid},
		{Key: "writeConcern", Value: majorityWithin(concernWait)},
	}).Err()
}

// proveTogether is proveName of several by one command.
func (n *Namespace) proveTogether(ctx context.Context, cs []identified) (map[string]error, error) {
	ops, names := make(bson.A, len(cs)), make(bson.A, len(cs))
	filter, update := absent()
	for i, c := range cs {
		ops[i] = bson.D{{Key: "update", Value: int32(i)}, {Key: "filter", Value: filter}, {Key: "updateMods", Value: update}} //nolint:gosec // hundreds
		names[i] = bson.D{{Key: "ns", Value: n.name + "." + c.name}, {Key: "collectionUUID", Value: c.uuid}}
	}
	var reply struct {
		Failed struct {
			First []struct {
				At      int    `bson:"idx"`
				Code    int32  `bson:"code"`
				Message string `bson:"errmsg"`
			} `bson:"firstBatch"`
		} `bson:"cursor"`
	}
	err := n.admin().RunCommand(ctx, bson.D{
		{Key: "bulkWrite", Value: 1}, {Key: "ops", Value: ops}, {Key: "nsInfo", Value: names},
		{Key: "ordered", Value: false}, {Key: "errorsOnly", Value: true},
		{Key: "writeConcern", Value: majorityWithin(concernWait)},
	}).Decode(&reply)
	if err != nil {
		return nil, err
	}
	by := make(map[string]error, len(cs))
	for _, f := range reply.Failed.First {
		by[cs[f.At].name] = mongo.CommandError{Code: f.Code, Message: f.Message}
	}
	return by, nil
}
