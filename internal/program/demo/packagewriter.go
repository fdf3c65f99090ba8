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

	"dbcontroller.dev/record"
)

// packageWriter is one client of the application's collection. Only it writes its documents. It is
// used by one goroutine.
type packageWriter struct {
	app    *application
	shapes shapes
	ledger *ledger
	tally  *tally
	ops    *atomic.Int64
	rng    *rand.Rand
	number int

	live  []bson.Raw // in the shape of v1
	dead  []bson.Raw // deleted; their _id and name are reused
	names int
}

// do makes one write, which was due at the given time.
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

// run makes one write and records its outcome. It reports false if the document's state is unknown;
// the caller must not write it again.
func (w *packageWriter) run(ctx context.Context, due time.Time, doc bson.Raw, next state, do func(context.Context, *mongo.Collection) error) bool {
	k, err := record.KeyOfDoc(doc)
	if err != nil {
		w.tally.writeFailed(err.Error())
		return false
	}
	key := string(k)
	w.ledger.Begin(key, next)
	callCtx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	if err := do(callCtx, w.app.packages); err != nil {
		w.ledger.Unknown(key)
		if ctx.Err() == nil {
			w.tally.writeFailed(fmt.Sprintf("%s %s: %v", pathPackages, k, err))
		}
		return false
	}
	w.ledger.Ack(key)
	w.tally.wrote(write{due: due, acked: time.Now(), path: pathPackages, on: w.app.version()})
	return true
}

// put makes a write after which doc is the content of the document.
func (w *packageWriter) put(ctx context.Context, due time.Time, doc bson.Raw, do func(context.Context, *mongo.Collection) error) {
	next, err := w.shapes.state(doc)
	if err != nil {
		w.tally.writeFailed(err.Error())
		return
	}
	if w.run(ctx, due, doc, next, do) {
		w.live = append(w.live, doc)
	}
}

// errMissed means that a write did not find its document. Only its own client writes a document.
var errMissed = errors.New("the document was not found")

// fresh returns an _id and a name for a new document. The _ids cover all types in the collection.
// Those of deleted documents are reused.
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
	w.put(ctx, due, doc, func(ctx context.Context, c *mongo.Collection) error {
		_, err := c.InsertOne(ctx, doc)
		return err
	})
}

func (w *packageWriter) remove(ctx context.Context, due time.Time) {
	doc := taken(w.rng, &w.live)
	if w.run(ctx, due, doc, state{}, func(ctx context.Context, c *mongo.Collection) error {
		res, err := c.DeleteOne(ctx, byID(doc))
		if err == nil && res.DeletedCount == 0 {
			return errMissed
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
	w.put(ctx, due, doc, func(ctx context.Context, c *mongo.Collection) error {
		return matched(c.ReplaceOne(ctx, byID(doc), doc))
	})
}

func (w *packageWriter) update(ctx context.Context, due time.Time, op int64) {
	set, doc, err := changes(taken(w.rng, &w.live), op)
	if err != nil {
		w.tally.writeFailed(err.Error())
		return
	}
	w.put(ctx, due, doc, func(ctx context.Context, c *mongo.Collection) error {
		return matched(c.UpdateOne(ctx, byID(doc), bson.D{{Key: "$set", Value: set}}))
	})
}

func byID(doc bson.Raw) bson.D { return bson.D{{Key: "_id", Value: doc.Lookup("_id")}} }

func matched(res *mongo.UpdateResult, err error) error {
	if err == nil && res.MatchedCount == 0 {
		return errMissed
	}
	return err
}

// application is an existing program with a collection. It knows MongoDB, by the connection string of
// the proxies, and no part of this project. It uses only fields that both versions have, so it always
// writes the same.
type application struct {
	packages *mongo.Collection
	deployed *deployed // for measurements; the program does not know it
}

// version returns the version that the deployment serves, as the demo has observed it.
func (a *application) version() string {
	_, _, d := a.deployed.line.window()
	return d.CurrentVersion
}

// read reads one document. A correct state has the shape of the version that was served during the
// read. The client cannot know which, so either shape counts; checkPackages knows it.
func (a *application) read(ctx context.Context, l *ledger, t *tally, key string) {
	callCtx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	reading, print := l.Read(key), ""
	doc, err := a.packages.FindOne(callCtx, bson.D{{Key: "_id", Value: record.Key(key).Value()}}).Raw()
	switch {
	case err == nil:
		print = printDoc(doc)
	// A missing document is an answer as well; the ledger knows if it may be absent.
	case errors.Is(err, mongo.ErrNoDocuments):
		err = nil
	}
	if err == nil && reading.Check(print, formOf(oldVersion)) != nil {
		err = reading.Check(print, formOf(newVersion))
	}
	switch {
	case err == nil:
		t.read()
	case ctx.Err() == nil:
		t.readFailed(fmt.Sprintf("%s: %v", record.Key(key), err))
	}
}
