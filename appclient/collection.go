package appclient

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Collection is where the documents of a kind are, with all methods of the driver's. Those
// that write are its own. Of those that write single documents it is known that a fence refused them as
// a whole, for a server says the same of an update of many documents that a fence met
// in the middle. What is refused past them, through the Collection inside or Place.Client, counts as such
// an update; what is written past them is not seen.
type Collection struct {
	*mongo.Collection
	attempt *attempt
}

func (c Collection) InsertOne(ctx context.Context, document any, opts ...options.Lister[options.InsertOneOptions]) (*mongo.InsertOneResult, error) {
	c.attempt.begins()
	res, err := c.Collection.InsertOne(ctx, document, opts...)
	c.attempt.ended(err, false)
	return res, err
}

func (c Collection) UpdateOne(ctx context.Context, filter, update any, opts ...options.Lister[options.UpdateOneOptions]) (*mongo.UpdateResult, error) {
	c.attempt.begins()
	res, err := c.Collection.UpdateOne(ctx, filter, update, opts...)
	c.attempt.ended(err, updatedNone(res))
	return res, err
}

func (c Collection) UpdateByID(ctx context.Context, id, update any, opts ...options.Lister[options.UpdateOneOptions]) (*mongo.UpdateResult, error) {
	c.attempt.begins()
	res, err := c.Collection.UpdateByID(ctx, id, update, opts...)
	c.attempt.ended(err, updatedNone(res))
	return res, err
}

func (c Collection) ReplaceOne(ctx context.Context, filter, replacement any, opts ...options.Lister[options.ReplaceOptions]) (*mongo.UpdateResult, error) {
	c.attempt.begins()
	res, err := c.Collection.ReplaceOne(ctx, filter, replacement, opts...)
	c.attempt.ended(err, updatedNone(res))
	return res, err
}

func (c Collection) DeleteOne(ctx context.Context, filter any, opts ...options.Lister[options.DeleteOneOptions]) (*mongo.DeleteResult, error) {
	c.attempt.begins()
	res, err := c.Collection.DeleteOne(ctx, filter, opts...)
	c.attempt.ended(err, deletedNone(res))
	return res, err
}

func (c Collection) FindOneAndUpdate(ctx context.Context, filter, update any, opts ...options.Lister[options.FindOneAndUpdateOptions]) *mongo.SingleResult {
	c.attempt.begins()
	res := c.Collection.FindOneAndUpdate(ctx, filter, update, opts...)
	c.attempt.ended(foundNone(res, given(opts).Upsert))
	return res
}

func (c Collection) FindOneAndReplace(ctx context.Context, filter, replacement any, opts ...options.Lister[options.FindOneAndReplaceOptions]) *mongo.SingleResult {
	c.attempt.begins()
	res := c.Collection.FindOneAndReplace(ctx, filter, replacement, opts...)
	c.attempt.ended(foundNone(res, given(opts).Upsert))
	return res
}

func (c Collection) FindOneAndDelete(ctx context.Context, filter any, opts ...options.Lister[options.FindOneAndDeleteOptions]) *mongo.SingleResult {
	c.attempt.begins()
	res := c.Collection.FindOneAndDelete(ctx, filter, opts...)
	c.attempt.ended(foundNone(res, nil))
	return res
}

// InsertMany is refused as a whole if no document was inserted.
func (c Collection) InsertMany(ctx context.Context, documents any, opts ...options.Lister[options.InsertManyOptions]) (*mongo.InsertManyResult, error) {
	c.attempt.begins()
	res, err := c.Collection.InsertMany(ctx, documents, opts...)
	if res != nil && len(res.InsertedIDs) == 0 {
		c.attempt.ended(err, false)
	}
	return res, err
}

// BulkWrite is refused as a whole if each of its operations is of one document, and none was done.
func (c Collection) BulkWrite(ctx context.Context, models []mongo.WriteModel, opts ...options.Lister[options.BulkWriteOptions]) (*mongo.BulkWriteResult, error) {
	c.attempt.begins()
	res, err := c.Collection.BulkWrite(ctx, models, opts...)
	if res != nil && res.InsertedCount+res.MatchedCount+res.UpsertedCount+res.DeletedCount == 0 && (err == nil || singles(models)) {
		c.attempt.ended(err, res.Acknowledged)
	}
	return res, err
}

// UpdateMany is never known to be refused as a whole.
func (c Collection) UpdateMany(ctx context.Context, filter, update any, opts ...options.Lister[options.UpdateManyOptions]) (*mongo.UpdateResult, error) {
	c.attempt.begins()
	res, err := c.Collection.UpdateMany(ctx, filter, update, opts...)
	if err == nil {
		c.attempt.ended(nil, updatedNone(res))
	}
	return res, err
}

// DeleteMany is never known to be refused as a whole.
func (c Collection) DeleteMany(ctx context.Context, filter any, opts ...options.Lister[options.DeleteManyOptions]) (*mongo.DeleteResult, error) {
	c.attempt.begins()
	res, err := c.Collection.DeleteMany(ctx, filter, opts...)
	if err == nil {
		c.attempt.ended(nil, deletedNone(res))
	}
	return res, err
}

// Aggregate is a read, unless it ends in $out or $merge: then it writes many documents.
func (c Collection) Aggregate(ctx context.Context, pipeline any, opts ...options.Lister[options.AggregateOptions]) (*mongo.Cursor, error) {
	if writes(pipeline) {
		c.attempt.begins()
	}
	return c.Collection.Aggregate(ctx, pipeline, opts...)
}

func updatedNone(res *mongo.UpdateResult) bool {
	return res != nil && res.Acknowledged && res.MatchedCount+res.UpsertedCount == 0
}

func deletedNone(res *mongo.DeleteResult) bool {
	return res != nil && res.Acknowledged && res.DeletedCount == 0
}

// foundNone tells an error from there having been no document, which an upsert also answers when it
// has inserted one.
func foundNone(res *mongo.SingleResult, upsert *bool) (error, bool) {
	err := res.Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, res.Acknowledged && (upsert == nil || !*upsert)
	}
	return err, false
}

// given are options as the driver takes them.
func given[T any](opts []options.Lister[T]) T {
	var all T
	for _, o := range opts {
		if o == nil {
			continue
		}
		for _, set := range o.List() {
			if set != nil {
				_ = set(&all) // the driver has failed by it
			}
		}
	}
	return all
}

func singles(models []mongo.WriteModel) bool {
	for _, m := range models {
		switch m.(type) {
		case *mongo.UpdateManyModel, *mongo.DeleteManyModel:
			return false
		}
	}
	return true
}

// writes reports whether a pipeline writes, or cannot be read here.
func writes(pipeline any) bool {
	kind, raw, err := bson.MarshalValue(pipeline)
	if err != nil || kind != bson.TypeArray {
		return true
	}
	stages, err := bson.RawArray(raw).Values()
	if err != nil {
		return true
	}
	if len(stages) == 0 {
		return false
	}
	last, ok := stages[len(stages)-1].DocumentOK()
	if !ok {
		return true
	}
	return last.Lookup("$out").Type != 0 || last.Lookup("$merge").Type != 0
}
