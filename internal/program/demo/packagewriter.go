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

	"dbcontroller.dev/appclient"
	"dbcontroller.dev/integration/workload"
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
func (w *packageWriter) run(ctx context.Context, due time.Time, key string, next state, do func(context.Context, appclient.Collection, string) error) bool {
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
	key, next, ok := w.plan(doc)
	if !ok {
		return
	}
	if w.run(ctx, due, key, next, func(ctx context.Context, c appclient.Collection, version string) error {
		shaped, err := w.shapes.in(version, doc)
		if err == nil {
			_, err = c.InsertOne(ctx, shaped)
		}
		return err
	}) {
		w.live = append(w.live, doc)
	}
}

// plan returns the key of a document and its expected state.
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
	if w.run(ctx, due, key, state{}, func(ctx context.Context, c appclient.Collection, _ string) error {
		res, err := c.DeleteOne(ctx, bson.D{{Key: "_id", Value: doc.Lookup("_id")}})
		// This client owns the document, so a miss means that the collection has moved.
		if err == nil && res.DeletedCount == 0 {
			return appclient.ErrMoved
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
	if w.run(ctx, due, key, next, func(ctx context.Context, c appclient.Collection, version string) error {
		shaped, err := w.shapes.in(version, doc)
		if err != nil {
			return err
		}
		res, err := c.ReplaceOne(ctx, bson.D{{Key: "_id", Value: doc.Lookup("_id")}}, shaped)
		// This client owns the document, so a miss means that the collection has moved.
		if err == nil && res.MatchedCount == 0 {
			return appclient.ErrMoved
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
	if w.run(ctx, due, key, next, func(ctx context.Context, c appclient.Collection, version string) error {
		fields, err := w.shapes.renamed(version, set, doc)
		if err != nil {
			return err
		}
		res, err := c.UpdateOne(ctx, bson.D{{Key: "_id", Value: doc.Lookup("_id")}}, bson.D{{Key: "$set", Value: fields}})
		// This client owns the document, so a miss means that the collection has moved.
		if err == nil && res.MatchedCount == 0 {
			return appclient.ErrMoved
		}
		return err
	}) {
		w.live = append(w.live, doc)
	}
}

// application is an existing program with a collection. It knows MongoDB and the Deployment API,
// and no other part of this project.
type application struct{ *appclient.App }

// registrationTTL is the time that controllers remember an application that is gone.
const registrationTTL = 10 * time.Second

// openApplication registers the application with any of the controllers.
func openApplication(ctx context.Context, controllers []string, m *mongo.Client) (*application, error) {
	app, err := appclient.Open(ctx, appclient.Config{
		Controllers: controllers, Application: "packages", Mongo: m, TTL: registrationTTL, Patience: callPatience,
	})
	return &application{app}, err
}

// write makes a write in the current collection, and returns the version written to.
func (a *application) write(ctx context.Context, do func(ctx context.Context, c appclient.Collection, version string) error) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	err = a.Write(ctx, func(ctx context.Context, at appclient.Place) error {
		version = at.Version
		c, err := at.Collection(packagesKind)
		if err != nil {
			return err
		}
		return do(ctx, c, at.Version)
	})
	return version, err
}

// read reads one document in the current collection. A document that is found is current, because
// writes go elsewhere only after its collection was renamed. A missing document is believed only if
// the collection has not moved.
func (a *application) read(ctx context.Context, l *ledger, t *tally, key string) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	print := ""
	var reading workload.Reading[state]
	var version string
	err := a.Read(ctx, func(ctx context.Context, at appclient.Place) error {
		reading, version, print = l.Read(key), at.Version, ""
		c, err := at.Collection(packagesKind)
		if err != nil {
			return err
		}
		doc, err := c.FindOne(ctx, bson.D{{Key: "_id", Value: record.Key(key).Value()}}).Raw()
		// The collection may have moved before the read. ErrMoved makes the client look again.
		if errors.Is(err, mongo.ErrNoDocuments) {
			return appclient.ErrMoved
		}
		print = printDoc(doc)
		return err
	})
	// Still missing at the current place: the document is absent, and the ledger decides.
	if errors.Is(err, appclient.ErrMoved) {
		err = nil
	}
	if err == nil {
		err = reading.Check(print, formOf(version))
	}
	switch {
	case err == nil:
		t.read()
	case !errors.Is(ctx.Err(), context.Canceled):
		t.readFailed(fmt.Sprintf("%s: %v", record.Key(key), err))
	}
}
