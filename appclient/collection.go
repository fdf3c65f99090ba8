package appclient

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Collection is the collection of a kind, with all methods of the driver. Its writing methods wrap
// the driver's, because App.Write must know which operations may have written.
//
// A fence is the state in which the database refuses all writes to the collection. If a fence
// refuses the write of a single document, nothing was written, and App.Write may run the callback
// again. If it refuses a write of many documents, some may have been written before the fence came.
// A refused write through the embedded Collection or Place.Client counts as a write of many
// documents. App.Write does not notice a successful write through those.
type Collection struct {
	*mongo.Collection
	attempt *attempt
}

// begins records the start of an operation and returns the attempt for its end. It records nothing and
// returns nil within the transaction of App.Transact: the end of the transaction decides for all its
// operations.
func (c Collection) begins(ctx context.Context) *attempt {
	if c.attempt != nil && c.attempt.session != nil && mongo.SessionFromContext(ctx) == c.attempt.session {
		return nil
	}
	c.attempt.begins()
	return c.attempt
}

// InsertOne inserts one document. If a fence refuses it, nothing was written.
func (c Collection) InsertOne(ctx context.Context, document any, opts ...options.Lister[options.InsertOneOptions]) (*mongo.InsertOneResult, error) {
	tried := c.begins(ctx)
	res, err := c.Collection.InsertOne(ctx, document, opts...)
	tried.ended(err, false)
	return res, err
}

// UpdateOne updates one document. If a fence refuses it, nothing was written.
func (c Collection) UpdateOne(ctx context.Context, filter, update any, opts ...options.Lister[options.UpdateOneOptions]) (*mongo.UpdateResult, error) {
	tried := c.begins(ctx)
	res, err := c.Collection.UpdateOne(ctx, filter, update, opts...)
	tried.ended(err, updatedNone(res))
	return res, err
}

// UpdateByID updates one document. If a fence refuses it, nothing was written.
func (c Collection) UpdateByID(ctx context.Context, id, update any, opts ...options.Lister[options.UpdateOneOptions]) (*mongo.UpdateResult, error) {
	tried := c.begins(ctx)
	res, err := c.Collection.UpdateByID(ctx, id, update, opts...)
	tried.ended(err, updatedNone(res))
	return res, err
}

// ReplaceOne replaces one document. If a fence refuses it, nothing was written.
func (c Collection) ReplaceOne(ctx context.Context, filter, replacement any, opts ...options.Lister[options.ReplaceOptions]) (*mongo.UpdateResult, error) {
	tried := c.begins(ctx)
	res, err := c.Collection.ReplaceOne(ctx, filter, replacement, opts...)
	tried.ended(err, updatedNone(res))
	return res, err
}

// DeleteOne deletes one document. If a fence refuses it, nothing was written.
func (c Collection) DeleteOne(ctx context.Context, filter any, opts ...options.Lister[options.DeleteOneOptions]) (*mongo.DeleteResult, error) {
	tried := c.begins(ctx)
	res, err := c.Collection.DeleteOne(ctx, filter, opts...)
	tried.ended(err, deletedNone(res))
	return res, err
}

// FindOneAndUpdate updates and returns one document. If a fence refuses it, nothing was written.
func (c Collection) FindOneAndUpdate(ctx context.Context, filter, update any, opts ...options.Lister[options.FindOneAndUpdateOptions]) *mongo.SingleResult {
	tried := c.begins(ctx)
	res := c.Collection.FindOneAndUpdate(ctx, filter, update, opts...)
	tried.ended(foundNone(res, given(opts).Upsert))
	return res
}

// FindOneAndReplace replaces and returns one document. If a fence refuses it, nothing was written.
func (c Collection) FindOneAndReplace(ctx context.Context, filter, replacement any, opts ...options.Lister[options.FindOneAndReplaceOptions]) *mongo.SingleResult {
	tried := c.begins(ctx)
	res := c.Collection.FindOneAndReplace(ctx, filter, replacement, opts...)
	tried.ended(foundNone(res, given(opts).Upsert))
	return res
}

// FindOneAndDelete deletes and returns one document. If a fence refuses it, nothing was written.
func (c Collection) FindOneAndDelete(ctx context.Context, filter any, opts ...options.Lister[options.FindOneAndDeleteOptions]) *mongo.SingleResult {
	tried := c.begins(ctx)
	res := c.Collection.FindOneAndDelete(ctx, filter, opts...)
	tried.ended(foundNone(res, nil))
	return res
}

// InsertMany inserts documents. A refusal by a fence counts as whole if no document was inserted.
func (c Collection) InsertMany(ctx context.Context, documents any, opts ...options.Lister[options.InsertManyOptions]) (*mongo.InsertManyResult, error) {
	tried := c.begins(ctx)
	res, err := c.Collection.InsertMany(ctx, documents, opts...)
	// Otherwise some documents were inserted, and the operation stays counted as a write.
	if res != nil && len(res.InsertedIDs) == 0 {
		tried.ended(err, false)
	}
	return res, err
}

// BulkWrite runs several operations. A refusal by a fence counts as whole if each operation writes
// one document and none succeeded.
func (c Collection) BulkWrite(ctx context.Context, models []mongo.WriteModel, opts ...options.Lister[options.BulkWriteOptions]) (*mongo.BulkWriteResult, error) {
	tried := c.begins(ctx)
	res, err := c.Collection.BulkWrite(ctx, models, opts...)
	if res != nil && res.InsertedCount+res.MatchedCount+res.UpsertedCount+res.DeletedCount == 0 && (err == nil || singles(models)) {
		tried.ended(err, res.Acknowledged)
	}
	return res, err
}

// UpdateMany updates all matching documents. A refusal by a fence never counts as whole.
func (c Collection) UpdateMany(ctx context.Context, filter, update any, opts ...options.Lister[options.UpdateManyOptions]) (*mongo.UpdateResult, error) {
	tried := c.begins(ctx)
	res, err := c.Collection.UpdateMany(ctx, filter, update, opts...)
	if err == nil {
		tried.ended(nil, updatedNone(res))
	}
	return res, err
}

// DeleteMany deletes all matching documents. A refusal by a fence never counts as whole.
func (c Collection) DeleteMany(ctx context.Context, filter any, opts ...options.Lister[options.DeleteManyOptions]) (*mongo.DeleteResult, error) {
	tried := c.begins(ctx)
	res, err := c.Collection.DeleteMany(ctx, filter, opts...)
	if err == nil {
		tried.ended(nil, deletedNone(res))
	}
	return res, err
}

// Aggregate runs a pipeline. It counts as a read, unless the pipeline ends in $out or $merge. Then
// it counts as a write of many documents.
func (c Collection) Aggregate(ctx context.Context, pipeline any, opts ...options.Lister[options.AggregateOptions]) (*mongo.Cursor, error) {
	if writes(pipeline) {
		c.begins(ctx)
	}
	return c.Collection.Aggregate(ctx, pipeline, opts...)
}

// updatedNone reports whether an update is known to have changed nothing.
func updatedNone(res *mongo.UpdateResult) bool {
	return res != nil && res.Acknowledged && res.MatchedCount+res.UpsertedCount == 0
}

// deletedNone reports whether a delete is known to have deleted nothing.
func deletedNone(res *mongo.DeleteResult) bool {
	return res != nil && res.Acknowledged && res.DeletedCount == 0
}

// foundNone separates real errors from a missing document. An upsert also returns ErrNoDocuments
// when it has inserted one, so it never counts as nothing.
func foundNone(res *mongo.SingleResult, upsert *bool) (error, bool) {
	err := res.Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, res.Acknowledged && (upsert == nil || !*upsert)
	}
	return err, false
}

// given returns the merged options, as the driver reads them.
func given[T any](opts []options.Lister[T]) T {
	var all T
	for _, o := range opts {
		if o == nil {
			continue
		}
		for _, set := range o.List() {
			if set != nil {
				_ = set(&all) // the driver reports the error
			}
		}
	}
	return all
}

// singles reports whether each operation writes one document at most.
func singles(models []mongo.WriteModel) bool {
	for _, m := range models {
		switch m.(type) {
		case *mongo.UpdateManyModel, *mongo.DeleteManyModel:
			return false
		}
	}
	return true
}

// writes reports whether a pipeline writes. It returns true for an unreadable one, to be safe.
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
	// The server accepts $out and $merge only as the last stage.
	last, ok := stages[len(stages)-1].DocumentOK()
	if !ok {
		return true
	}
	return last.Lookup("$out").Type != 0 || last.Lookup("$merge").Type != 0
}
