package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/integration/workload"
	"dbcontroller.dev/upgradestate"
)

// packagesKind is the collection of an existing application.
const packagesKind = "packages"

// packageDoc is one of its documents, in either version; n is the number of the
// operation that wrote it last, or 0.
func packageDoc(version, key string, n int64) bson.D {
	d := bson.D{{Key: "_id", Value: key}, {Key: "name", Value: "name of " + key}, {Key: "n", Value: n}}
	switch upgradestate.APIVersion(version) {
	case "v3":
		return append(d, bson.E{Key: "topic", Value: "section of " + key}, bson.E{Key: "text", Value: strings.Repeat(key+" ", 12)},
			bson.E{Key: "schema", Value: 2})
	case "v1":
		return append(d, bson.E{Key: "section", Value: "section of " + key}, bson.E{Key: "text", Value: strings.Repeat(key+" ", 12)})
	}
	return append(d, bson.E{Key: "category", Value: "section of " + key}, bson.E{Key: "text", Value: strings.Repeat(key+" ", 12)},
		bson.E{Key: "schema", Value: 2})
}

func packageKey(i int) string { return fmt.Sprintf("package-%06d", i) }

func packageState(n int64) string { return fmt.Sprintf("operation %d", n) }

// fill gives the application so many documents.
func (s *system) fill(ctx context.Context, l *ledger, n int) {
	s.t.Helper()
	docs := make([]any, n)
	for i := range docs {
		docs[i] = packageDoc("v1", packageKey(i), 0)
		l.Put(packageKey(i), packageState(0))
	}
	if _, err := s.db["v1"].Collection(packagesKind).InsertMany(ctx, docs); err != nil {
		s.t.Fatal(err)
	}
}

// rawPackages sees the application's documents where the application would, in a version.
func (s *system) rawPackages(ctx context.Context, version string) (workload.Seen, error) {
	cursor, err := s.db[version].Collection(packagesKind).Find(ctx, bson.D{})
	if err != nil {
		return nil, err
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	seen := workload.Seen{}
	for cursor.Next(ctx) {
		var has, want bson.M
		if err := bson.Unmarshal(cursor.Current, &has); err != nil {
			return nil, err
		}
		key, _ := has["_id"].(string)
		n, _ := has["n"].(int64)
		state := packageState(n)
		text, err := bson.Marshal(packageDoc(version, key, n))
		if err == nil {
			err = bson.Unmarshal(text, &want)
		}
		if err != nil {
			return nil, err
		}
		if !reflect.DeepEqual(has, want) {
			state += fmt.Sprintf(" in %v", has)
		}
		seen.Add(key, state)
	}
	return seen, cursor.Err()
}

// packageWriter is one client of the existing application, and the only one that writes
// its documents. It relies on the database alone: it does not register and does not
// hold, but asks where the data is when it is refused.
type packageWriter struct {
	system *system
	ledger *ledger
	rng    *rand.Rand
	op     int64
	live   []string
	dead   []string
	at     *dbv1.Location
	keeps  bool // it deletes nothing
}

// step is one operation: insert what was deleted, update, delete.
func (w *packageWriter) step(ctx context.Context) {
	w.op++
	doc := bson.D{{Key: "n", Value: w.op}}
	switch dice := w.rng.IntN(10); {
	case len(w.dead) > 0 && (dice < 3 || len(w.live) < 3):
		key := w.dead[len(w.dead)-1]
		w.dead = w.dead[:len(w.dead)-1]
		if w.write(ctx, key, packageState(w.op), func(c *mongo.Collection, version string) error {
			_, err := c.InsertOne(ctx, packageDoc(version, key, w.op))
			return err
		}) {
			w.live = append(w.live, key)
		}
	case dice < 6 && !w.keeps:
		key := w.take()
		if w.write(ctx, key, "", func(c *mongo.Collection, _ string) error {
			res, err := c.DeleteOne(ctx, bson.D{{Key: "_id", Value: key}})
			if err == nil && res.DeletedCount == 0 {
				return errMoved
			}
			return err
		}) {
			w.dead = append(w.dead, key)
		}
	default:
		key := w.take()
		if w.write(ctx, key, packageState(w.op), func(c *mongo.Collection, _ string) error {
			res, err := c.UpdateOne(ctx, bson.D{{Key: "_id", Value: key}}, bson.D{{Key: "$set", Value: doc}})
			if err == nil && res.MatchedCount == 0 {
				return errMoved
			}
			return err
		}) {
			w.live = append(w.live, key)
		}
	}
}

// errMoved: nothing was written, and the document should have been there.
var errMoved = errors.New("the document is not there")

func (w *packageWriter) take() string {
	i := w.rng.IntN(len(w.live))
	key := w.live[i]
	w.live[i] = w.live[len(w.live)-1]
	w.live = w.live[:len(w.live)-1]
	return key
}

// write makes a write where the data is, again where it was refused.
func (w *packageWriter) write(ctx context.Context, key, next string, do func(c *mongo.Collection, version string) error) bool {
	w.ledger.Begin(key, next)
	sent := time.Now()
	missed := int64(-1) // revision at which the document was not there
	for {
		if w.at == nil {
			if w.at = w.ask(ctx); w.at == nil {
				return false
			}
		}
		at := w.at
		err := do(w.collection(at), at.GetVersion())
		switch {
		case err == nil:
			w.ledger.ack(key, ack{sent: sent, acked: time.Now(), version: at.GetVersion()})
			return true
		case ctx.Err() != nil:
			return false
		case errors.Is(err, errMoved) && missed != at.GetRevision():
			missed, w.at = at.GetRevision(), nil
		case refused(err):
			w.at = nil
			if pauseFor(ctx, 10*time.Millisecond) != nil {
				return false
			}
		default:
			w.ledger.Unknown(key)
			w.ledger.fail("write %s to %s: %v", key, at.GetVersion(), err)
			return false
		}
	}
}

func (w *packageWriter) collection(at *dbv1.Location) *mongo.Collection {
	for _, k := range at.GetKinds() {
		if k.GetKind() == packagesKind {
			return w.system.db[at.GetVersion()].Collection(k.GetCollection())
		}
	}
	return w.system.db[at.GetVersion()].Collection(packagesKind)
}

// ask waits until the data can be written, and returns where. Controllers come and go.
func (w *packageWriter) ask(ctx context.Context) *dbv1.Location {
	for ctx.Err() == nil {
		for _, api := range w.system.apis() {
			res, err := api.GetLocation(ctx, connect.NewRequest(&dbv1.GetLocationRequest{}))
			if err == nil && res.Msg.GetState() == dbv1.Location_OPEN {
				return res.Msg
			}
		}
		if pauseFor(ctx, 20*time.Millisecond) != nil {
			return nil
		}
	}
	return nil
}

// refused recognises how MongoDB refuses writes to a fenced collection of an application.
func refused(err error) bool {
	const validator, view, writeBlock = 121, 166, 371
	var se mongo.ServerError
	return errors.As(err, &se) && (se.HasErrorCode(validator) || se.HasErrorCode(view) || se.HasErrorCode(writeBlock))
}
