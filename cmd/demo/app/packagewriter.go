package app

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/record"
)

// packageWriter is one client of the application's collection, and the only one that
// writes its documents. It is used by one goroutine.
type packageWriter struct {
	app    *application
	shapes shapes
	ledger *ledger
	tally  *tally
	ops    *atomic.Int64
	rng    *rand.Rand
	number int

	live  []bson.Raw // documents in the shape of v1
	dead  []bson.Raw // _ids and names to be used again
	names int
}

// do makes one write that was due at a time.
func (w *packageWriter) do(ctx context.Context, due time.Time) {
	op := w.ops.Add(1)
	switch dice := w.rng.IntN(100); {
	case dice < 20 || len(w.live) < 3:
		w.insert(ctx, due, op)
	case dice < 35:
		w.remove(ctx, due)
	case dice < 50:
		w.replace(ctx, due, op)
	default:
		w.update(ctx, due, op)
	}
}

// run makes one write and notes what became of it. A document whose state is unknown is
// not touched again.
func (w *packageWriter) run(ctx context.Context, due time.Time, key string, next state, do func(context.Context, *mongo.Collection, string) error) bool {
	w.ledger.Begin(key, next)
	version, err := w.app.write(ctx, do)
	if err != nil {
		w.ledger.Unknown(key)
		if ctx.Err() == nil {
			w.tally.writeFailed(fmt.Sprintf("%s %s: %v", pathPackages, record.Key(key), err))
		}
		return false
	}
	w.ledger.Ack(key)
	w.tally.wrote(write{due: due, acked: time.Now(), path: pathPackages, on: version})
	return true
}

// fresh is an _id of one of the types that the collection has, with a name. Those of
// deleted documents are used again.
func (w *packageWriter) fresh() (id any, name string) {
	if n := len(w.dead); n > 0 && w.rng.IntN(2) == 0 {
		doc := w.dead[n-1]
		w.dead = w.dead[:n-1]
		return doc.Lookup("_id"), doc.Lookup("name").StringValue()
	}
	w.names++
	name = fmt.Sprintf("demo-%d-%d", w.number, w.names)
	switch w.names % 4 {
	case 0:
		return int64(w.number+1)<<40 + int64(w.names), name
	case 1:
		return bson.D{{Key: "name", Value: name}, {Key: "arch", Value: "amd64"}}, name
	default:
		return name, name
	}
}

func (w *packageWriter) insert(ctx context.Context, due time.Time, op int64) {
	id, name := w.fresh()
	doc, err := newPackage(id, name, op)
	if err != nil {
		w.tally.writeFailed(err.Error())
		return
	}
	key, next, ok := w.plan(doc)
	if !ok {
		return
	}
	if w.run(ctx, due, key, next, func(ctx context.Context, c *mongo.Collection, version string) error {
		shaped, err := w.shapes.in(version, doc)
		if err == nil {
			_, err = c.InsertOne(ctx, shaped)
		}
		return err
	}) {
		w.live = append(w.live, doc)
	}
}

// plan is the key of a document and the state that it will have.
func (w *packageWriter) plan(doc bson.Raw) (key string, next state, ok bool) {
	k, err := record.KeyOfDoc(doc)
	if err == nil {
		next, err = w.shapes.state(doc)
	}
	if err != nil {
		w.tally.writeFailed(err.Error())
		return "", state{}, false
	}
	return string(k), next, true
}

func (w *packageWriter) remove(ctx context.Context, due time.Time) {
	doc := taken(w.rng, &w.live)
	key, _, ok := w.plan(doc)
	if !ok {
		return
	}
	if w.run(ctx, due, key, state{}, func(ctx context.Context, c *mongo.Collection, _ string) error {
		res, err := c.DeleteOne(ctx, bson.D{{Key: "_id", Value: doc.Lookup("_id")}})
		if err == nil && res.DeletedCount == 0 {
			return errMoved
		}
		return err
	}) {
		w.dead = append(w.dead, doc)
	}
}

func (w *packageWriter) replace(ctx context.Context, due time.Time, op int64) {
	old := taken(w.rng, &w.live)
	doc, err := newPackage(old.Lookup("_id"), old.Lookup("name").StringValue(), op)
	if err != nil {
		w.tally.writeFailed(err.Error())
		return
	}
	key, next, ok := w.plan(doc)
	if !ok {
		return
	}
	if w.run(ctx, due, key, next, func(ctx context.Context, c *mongo.Collection, version string) error {
		shaped, err := w.shapes.in(version, doc)
		if err != nil {
			return err
		}
		res, err := c.ReplaceOne(ctx, bson.D{{Key: "_id", Value: doc.Lookup("_id")}}, shaped)
		if err == nil && res.MatchedCount == 0 {
			return errMoved
		}
		return err
	}) {
		w.live = append(w.live, doc)
	}
}

func (w *packageWriter) update(ctx context.Context, due time.Time, op int64) {
	set, doc, err := changes(taken(w.rng, &w.live), op)
	if err != nil {
		w.tally.writeFailed(err.Error())
		return
	}
	key, next, ok := w.plan(doc)
	if !ok {
		return
	}
	if w.run(ctx, due, key, next, func(ctx context.Context, c *mongo.Collection, version string) error {
		fields, err := w.shapes.renamed(version, set, doc)
		if err != nil {
			return err
		}
		res, err := c.UpdateOne(ctx, bson.D{{Key: "_id", Value: doc.Lookup("_id")}}, bson.D{{Key: "$set", Value: fields}})
		if err == nil && res.MatchedCount == 0 {
			return errMoved
		}
		return err
	}) {
		w.live = append(w.live, doc)
	}
}

// read reads one document where the data is. A document that is found under the name
// that the application knows is current, since nobody can write elsewhere before that
// name has moved. That one is absent is believed only if the data had not moved.
func (a *application) read(ctx context.Context, l *ledger, t *tally, key string) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	for {
		reading := l.Read(key)
		loc := a.where()
		doc, found, err := a.find(ctx, loc, record.Key(key))
		if err != nil && !fenced(err) {
			if !errors.Is(ctx.Err(), context.Canceled) {
				t.readFailed(fmt.Sprintf("%s: %v", record.Key(key), err))
			}
			return
		}
		if err != nil || !found {
			now, askErr := a.ask(ctx)
			if askErr != nil {
				if !errors.Is(ctx.Err(), context.Canceled) {
					t.readFailed(fmt.Sprintf("%s: %v", record.Key(key), askErr))
				}
				return
			}
			if err != nil || now.GetState() != dbv1.Location_OPEN || now.GetRevision() != loc.GetRevision() {
				if a.open(ctx) != nil {
					if !errors.Is(ctx.Err(), context.Canceled) {
						t.readFailed(fmt.Sprintf("%s: the data is nowhere to be read", record.Key(key)))
					}
					return
				}
				continue
			}
		}
		print := ""
		if found {
			print = printDoc(doc)
		}
		if err := reading.Check(print, formOf(loc.GetVersion())); err != nil {
			t.readFailed(fmt.Sprintf("%s: %v", record.Key(key), err))
			return
		}
		t.read()
		return
	}
}

func (a *application) find(ctx context.Context, loc *dbv1.Location, key record.Key) (doc bson.Raw, found bool, err error) {
	c, err := a.collection(loc)
	if err != nil {
		return nil, false, err
	}
	doc, err = c.FindOne(ctx, bson.D{{Key: "_id", Value: key.Value()}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, false, nil
	}
	return doc, err == nil, err
}

// open waits until the location says that all is well.
func (a *application) open(ctx context.Context) error {
	_, err := a.enter(ctx)
	if err == nil {
		a.leave()
	}
	return err
}
