package appclient_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/drivertest"

	"dbcontroller.dev/appclient"
)

// answering is a client whose server gives these answers, one after the other, and then none.
func answering(t *testing.T, answers ...bson.D) *mongo.Client {
	t.Helper()
	opts := options.Client()
	opts.Deployment = drivertest.NewMockDeployment(answers...) //nolint:staticcheck // SA1019: the driver has no other way to give it answers, as its own tests do it
	client, err := mongo.Connect(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return client
}

// TestSeveralOperations: a callback is run again only if none of its operations wrote anything,
// whatever the last one was refused by.
func TestSeveralOperations(t *testing.T) {
	t.Parallel()
	wrote := bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 1}, {Key: "nModified", Value: 1}, {Key: "value", Value: bson.D{{Key: "_id", Value: 1}}}}
	none := bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 0}, {Key: "nModified", Value: 0}, {Key: "value", Value: nil}}
	failing := func(code int) bson.D {
		return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 0}, {Key: "nModified", Value: 0}, {Key: "writeErrors", Value: bson.A{
			bson.D{{Key: "index", Value: 0}, {Key: "code", Value: code}, {Key: "errmsg", Value: "no"}},
		}}}
	}
	refusal := failing(166)
	commandFails := func(code int, labels ...string) bson.D {
		return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "errmsg", Value: "no"}, {Key: "errorLabels", Value: labels}}
	}
	cursor := bson.D{{Key: "ok", Value: 1}, {Key: "cursor", Value: bson.D{{Key: "id", Value: int64(0)}, {Key: "ns", Value: "d.c"}, {Key: "firstBatch", Value: bson.A{}}}}}

	type do = func(context.Context, appclient.Collection) error
	doc, set := bson.D{{Key: "_id", Value: 1}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}
	insert := func(ctx context.Context, c appclient.Collection) error { _, err := c.InsertOne(ctx, doc); return err }
	update := func(ctx context.Context, c appclient.Collection) error {
		_, err := c.UpdateOne(ctx, doc, set)
		return err
	}
	updateMany := func(ctx context.Context, c appclient.Collection) error {
		_, err := c.UpdateMany(ctx, doc, set)
		return err
	}
	deleteMany := func(ctx context.Context, c appclient.Collection) error { _, err := c.DeleteMany(ctx, doc); return err }
	find := func(upsert bool) do {
		return func(ctx context.Context, c appclient.Collection) error {
			err := c.FindOneAndUpdate(ctx, doc, set, options.FindOneAndUpdate().SetUpsert(upsert)).Err()
			if errors.Is(err, mongo.ErrNoDocuments) {
				return nil
			}
			return err
		}
	}
	aggregate := func(stages ...bson.D) do {
		return func(ctx context.Context, c appclient.Collection) error {
			cur, err := c.Aggregate(ctx, mongo.Pipeline(stages))
			if err == nil {
				err = cur.Close(ctx)
			}
			return err
		}
	}
	handled := func(f do) do {
		return func(ctx context.Context, c appclient.Collection) error {
			if f(ctx, c) == nil {
				return errors.New("it should have failed")
			}
			return nil
		}
	}
	missing := func(context.Context, appclient.Collection) error { return appclient.ErrMoved }
	of := func(f ...do) []do { return f }
	match, merge := bson.D{{Key: "$match", Value: bson.D{}}}, bson.D{{Key: "$merge", Value: "other"}}

	for _, tc := range []struct {
		name    string
		do      []do
		answers []bson.D
		again   bool // is it run again when the data has moved, or of unknown outcome?
		unknown bool // of unknown outcome also where the data has not moved
	}{
		{name: "one", do: of(insert), answers: []bson.D{refusal}, again: true},
		{name: "one, then one", do: of(insert, update), answers: []bson.D{wrote, refusal}},
		{name: "one by one, then one", do: of(find(false), update), answers: []bson.D{wrote, refusal}},
		{name: "one that may have been, then one", do: of(handled(insert), update), answers: []bson.D{commandFails(100), refusal}},
		{name: "one, then something missing", do: of(insert, missing), answers: []bson.D{wrote}},
		{name: "one, then a transaction that was ended", do: of(insert, update), answers: []bson.D{wrote, commandFails(251, "TransientTransactionError")}, unknown: true},
		{name: "one that found nothing, then one", do: of(update, insert), answers: []bson.D{none, refusal}, again: true},
		{name: "one that found nothing by one, then one", do: of(find(false), insert), answers: []bson.D{none, refusal}, again: true},
		{name: "one that found nothing and was inserted, then one", do: of(find(true), insert), answers: []bson.D{none, refusal}},
		{name: "one that was there, then one", do: of(handled(insert), update), answers: []bson.D{failing(11000), refusal}, again: true},
		{name: "one refused, then one", do: of(handled(insert), update), answers: []bson.D{refusal, refusal}, again: true},
		{name: "one refused, then many torn", do: of(handled(insert), updateMany), answers: []bson.D{failing(121), refusal}},
		{name: "one refused, then many torn by a block", do: of(handled(insert), deleteMany), answers: []bson.D{refusal, commandFails(371)}},
		{name: "many torn, then one refused", do: of(handled(updateMany), insert), answers: []bson.D{refusal, refusal}},
		{name: "many, then one", do: of(updateMany, insert), answers: []bson.D{wrote, refusal}},
		{name: "many deleted, then one", do: of(deleteMany, insert), answers: []bson.D{wrote, refusal}},
		{name: "many that found nothing, then one", do: of(updateMany, deleteMany, insert), answers: []bson.D{none, none, refusal}, again: true},
		{name: "a read, then one", do: of(aggregate(match), insert), answers: []bson.D{cursor, refusal}, again: true},
		{name: "a merge, then one", do: of(aggregate(match, merge), insert), answers: []bson.D{cursor, refusal}},
		{name: "one refused, then a merge torn", do: of(handled(insert), aggregate(match, merge)), answers: []bson.D{refusal, commandFails(166)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, moves := range []bool{true, false} {
				d := newDeployment()
				app := openWith(t, answering(t, tc.answers...), startController(t, d))
				var seen versions
				err := app.Write(t.Context(), func(ctx context.Context, place appclient.Place) error {
					_ = seen.run(ctx, place)
					if place.Version != "v1" {
						return nil
					}
					c, err := place.Collection(kind)
					for i := 0; err == nil && i < len(tc.do); i++ {
						if moves && i == len(tc.do)-1 {
							d.set(at("v2", 2))
						}
						err = tc.do[i](ctx, c)
					}
					return err
				})
				runs, unknown := "v1", tc.unknown || moves && !tc.again
				if moves && tc.again {
					runs = "v1 v2"
				}
				if got := strings.Join(seen, " "); got != runs {
					t.Errorf("moves %t: it is run at %s, want %s: %v", moves, got, runs, err)
				}
				if got := errors.Is(err, appclient.ErrUnknownOutcome); got != unknown {
					t.Errorf("moves %t: %v, want unknown %t", moves, err, unknown)
				}
				if ok := moves && tc.again; ok != (err == nil) || errors.Is(err, appclient.ErrNotWritten) {
					t.Errorf("moves %t: %v", moves, err)
				}
			}
		})
	}
}

// TestStillGoingOn: what has not ended when the callback does may have been written.
func TestStillGoingOn(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	app := open(t, startController(t, d))
	var seen versions
	err := app.Write(t.Context(), func(ctx context.Context, place appclient.Place) error {
		_ = seen.run(ctx, place)
		d.set(at("v2", 2))
		appclient.Begins(place)
		return appclient.OfOne(place, mongo.CommandError{Code: 361})
	})
	if !errors.Is(err, appclient.ErrUnknownOutcome) || len(seen) != 1 {
		t.Errorf("%v; it is run at %s", err, seen)
	}
}

// TestTransactionBesideAWrite: a write outside of the transaction stays written, so a refused
// transaction is not run again after it.
func TestTransactionBesideAWrite(t *testing.T) {
	t.Parallel()
	wrote := bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 1}}
	refusal := bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 166}, {Key: "errmsg", Value: "no"}}
	aborted := bson.D{{Key: "ok", Value: 1}}
	for name, beside := range map[string]bool{"alone": false, "beside a write": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeployment()
			app := openWith(t, answering(t, wrote, refusal, aborted), startController(t, d))
			var seen versions
			outer := t.Context()
			err := app.Transact(outer, func(ctx context.Context, place appclient.Place) error {
				_ = seen.run(ctx, place)
				if place.Version != "v1" {
					return nil
				}
				first := ctx
				if beside {
					first = outer
				}
				c, err := place.Collection(kind)
				if err != nil {
					return err
				}
				if _, err := c.InsertOne(first, bson.D{{Key: "_id", Value: 1}}); err != nil {
					return err
				}
				d.set(at("v2", 2))
				_, err = c.InsertOne(ctx, bson.D{{Key: "_id", Value: 2}})
				return err
			})
			if got := strings.Join(seen, " "); beside {
				if !errors.Is(err, appclient.ErrUnknownOutcome) || got != "v1" {
					t.Errorf("%v in %s", err, got)
				}
			} else if err != nil || got != "v1 v2" {
				t.Errorf("%v in %s", err, got)
			}
		})
	}
}
