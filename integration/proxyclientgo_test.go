package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// runGo runs the workers of a client on the Go driver. They end after stop.
func (u *unmodified) runGo(ctx context.Context, part unmodifiedPart) (stop func()) {
	working, end := context.WithCancel(ctx)
	client, err := mongo.Connect(options.Client().ApplyURI(part.URI))
	if err != nil {
		u.hear(clientLine{Failed: err.Error()})
		return end
	}
	var g sync.WaitGroup
	for i := range part.Workers {
		w := &goWorker{part: part, id: fmt.Sprintf("%s-%d", part.Name, i), db: client.Database(part.Database), tell: u.hear}
		g.Go(func() {
			steps, err := 0, w.open(ctx)
			for err == nil && working.Err() == nil {
				if err = w.step(ctx, steps+1); err == nil {
					steps++
					u.hear(clientLine{Step: 1})
				}
			}
			l := clientLine{Worker: w.id, Steps: steps}
			if err != nil {
				l.Failed = fmt.Sprintf("%s, step %d, %s: %v", w.id, steps+1, w.doing, err)
			}
			u.hear(l)
		})
	}
	return func() {
		end()
		g.Wait()
		if err := client.Disconnect(context.WithoutCancel(ctx)); err != nil {
			u.hear(clientLine{Failed: err.Error()})
		}
	}
}

// goWorker makes the steps of one worker.
type goWorker struct {
	part  unmodifiedPart
	id    string
	db    *mongo.Database
	doing string
	tell  func(clientLine)
}

// lostRouter reports whether an error of a cursor is one that a lost router gives: the connection breaks, the
// driver uses the router no longer, or another router does not know the cursor.
func lostRouter(err error) bool {
	var failed mongo.ServerError
	return mongo.IsNetworkError(err) || clearedPool(err) || errors.As(err, &failed) && (failed.HasErrorCode(43) || failed.HasErrorCode(6))
}

// clearedPool reports whether the driver has left a router before it had a connection for a command.
func clearedPool(err error) bool { return strings.Contains(err.Error(), "was cleared because") }

func (w *goWorker) open(ctx context.Context) error {
	w.doing = "start"
	_, err := w.db.Collection("accounts").InsertOne(ctx, bson.D{{Key: "_id", Value: w.id}, {Key: "n", Value: 0}, {Key: "found", Value: 0}})
	return err
}

func byID(id any) bson.D { return bson.D{{Key: "_id", Value: id}} }

func increment(field string, by int) bson.D {
	return bson.D{{Key: "$inc", Value: bson.D{{Key: field, Value: by}}}}
}

func (w *goWorker) step(ctx context.Context, n int) error {
	accounts, entries := w.db.Collection("accounts"), w.db.Collection("entries")
	key := fmt.Sprintf("%s-%d", w.id, n)
	w.doing = "count"
	updated, err := accounts.UpdateOne(ctx, byID(w.id), increment("n", 1))
	if err == nil {
		err = want(updated.ModifiedCount, 1)
	}
	if err != nil {
		return err
	}
	w.doing = "transaction"
	if err := w.transact(ctx, key, n); err != nil {
		return err
	}
	w.doing = "bulk write"
	var models []mongo.WriteModel
	for i := range 5 {
		models = append(models, mongo.NewInsertOneModel().SetDocument(bson.D{{Key: "_id", Value: fmt.Sprintf("%s-b%d", key, i)}, {Key: "n", Value: n}}))
	}
	models = append(models, mongo.NewUpdateOneModel().SetFilter(byID(w.id+"-tally")).SetUpdate(increment("n", 1)).SetUpsert(true))
	written, err := entries.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(n%2 == 0))
	if err == nil {
		err = want(written.InsertedCount, 5)
	}
	if err != nil {
		return err
	}
	w.doing = "find and modify"
	var account struct{ Found int64 }
	err = accounts.FindOneAndUpdate(ctx, byID(w.id), increment("found", 1), options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&account)
	if err == nil {
		err = want(account.Found, int64(n))
	}
	if err != nil {
		return err
	}
	w.doing = "delete"
	deleted, err := entries.DeleteOne(ctx, byID(key+"-b0"))
	if err == nil {
		err = want(deleted.DeletedCount, 1)
	}
	if err != nil {
		return err
	}
	w.doing = "bulk delete"
	written, err = entries.BulkWrite(ctx, []mongo.WriteModel{mongo.NewDeleteOneModel().SetFilter(byID(key + "-b1")), mongo.NewDeleteOneModel().SetFilter(byID(key + "-b2"))})
	if err == nil {
		err = want(written.DeletedCount, 2)
	}
	if err != nil {
		return err
	}
	w.doing = "read"
	var entry struct{ N int64 }
	err = entries.FindOne(ctx, byID(key+"-t")).Decode(&entry)
	if err == nil {
		err = want(entry.N, int64(n))
	}
	if err == nil && n%w.part.Scan == 0 {
		w.doing = "cursor"
		for err = w.scan(ctx); err != nil && w.part.Killed && lostRouter(err); err = w.scan(ctx) {
			w.tell(clientLine{Again: 1})
		}
	}
	return err
}

func (w *goWorker) transact(ctx context.Context, key string, n int) error {
	accounts, entries := w.db.Collection("accounts"), w.db.Collection("entries")
	session, err := w.db.Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		_, err := accounts.UpdateOne(ctx, byID(rand.IntN(w.part.Accounts)), increment("money", -1))
		if err == nil {
			_, err = accounts.UpdateOne(ctx, byID(rand.IntN(w.part.Accounts)), increment("money", 1))
		}
		if err == nil {
			_, err = entries.InsertOne(ctx, bson.D{{Key: "_id", Value: key + "-t"}, {Key: "n", Value: n}})
		}
		return nil, err
	})
	return err
}

func (w *goWorker) scan(ctx context.Context) error {
	cursor, err := w.db.Collection("records").Find(ctx, bson.D{}, options.Find().SetBatchSize(200))
	if err != nil {
		return err
	}
	var all []struct{ N int }
	if err := cursor.All(ctx, &all); err != nil {
		return err
	}
	var numbers []int
	for _, d := range all {
		numbers = append(numbers, d.N)
	}
	slices.Sort(numbers)
	if err := want(int64(len(slices.Compact(numbers))), int64(w.part.Records)); err != nil {
		return err
	}
	return want(int64(len(all)), int64(w.part.Records))
}

func want(got, wanted int64) error {
	if got != wanted {
		return fmt.Errorf("got %d, want %d", got, wanted)
	}
	return nil
}
