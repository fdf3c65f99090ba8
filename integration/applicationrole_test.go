package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/appclient"
)

// playApplication is the life of a process of an application in Go: clients/node/scenario
// in another language. It tells what it does on standard output.
func playApplication(ctx context.Context) error {
	w := &applicationWriter{out: json.NewEncoder(os.Stdout), orders: make(chan string, 1)}
	if err := json.Unmarshal([]byte(os.Getenv(applicationVariable)), &w.part); err != nil {
		return fmt.Errorf("read part: %w", err)
	}
	var err error
	if w.mongo, err = connectApplication(w.part.URI, w.part.Name); err != nil {
		return err
	}
	work := context.WithoutCancel(ctx) // what was begun is ended
	defer w.mongo.Disconnect(work)     //nolint:errcheck // the process ends
	if len(w.part.Controllers) > 0 {
		cfg := appclient.Config{
			Controllers: w.part.Controllers, Application: w.part.Name, Mongo: w.mongo, Patience: patience,
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		}
		if w.part.Elsewhere != nil {
			cfg.Mongo, cfg.MongoAt = nil, func(_ context.Context, at appclient.Where) (*mongo.Client, error) {
				if uri := w.part.Elsewhere[at.Version]; uri != "" {
					return connectApplication(uri, w.part.Name)
				}
				return w.mongo, nil
			}
		}
		if w.app, err = appclient.Open(ctx, cfg); err != nil {
			return err
		}
	}
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			w.orders <- lines.Text()
		}
	}()
	for n := int32(1); pauseFor(ctx, 40*time.Millisecond) == nil; n++ {
		w.step(work, n)
	}
	if w.app == nil {
		return nil
	}
	return w.app.Close(work)
}

// applicationWriter is the only one that writes its documents.
type applicationWriter struct {
	part  applicationPart
	mongo *mongo.Client
	app   *appclient.App // nil: it does not cooperate
	out   *json.Encoder
	live  []bson.ObjectID

	orders chan string // lines of standard input: to stand still within the next update or transaction, until the next line
	stands bool        // within the next write
}

func (w *applicationWriter) tell(line told) { _ = w.out.Encode(line) } // a parent that is gone takes this process with it

// at is where a process that cooperates, or one that does not, finds a collection.
type collectionAt func(kind string) (appclient.Collection, error)

func (w *applicationWriter) alone(kind string) (appclient.Collection, error) {
	return appclient.Collection{Collection: w.mongo.Database(w.part.Database).Collection(kind)}, nil
}

func (w *applicationWriter) write(ctx context.Context, do func(ctx context.Context, version string, at collectionAt) error) error {
	if w.app == nil {
		return do(ctx, "v1", w.alone)
	}
	return w.app.Write(ctx, func(ctx context.Context, at appclient.Place) error { return do(ctx, at.Version, at.Collection) })
}

func (w *applicationWriter) transact(ctx context.Context, do func(ctx context.Context, version string, at collectionAt) error) error {
	if w.app != nil {
		return w.app.Transact(ctx, func(ctx context.Context, at appclient.Place) error { return do(ctx, at.Version, at.Collection) })
	}
	return w.mongo.UseSession(ctx, func(ctx context.Context) error {
		_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) { return nil, do(ctx, "v1", w.alone) })
		return err
	})
}

// became is what became of a write. A record whose state is not known is not touched again.
type became int

const (
	acked became = iota
	wasRefused
	unknown
)

// step is one operation: insert, delete, update, update with an insert, or read.
func (w *applicationWriter) step(ctx context.Context, n int32) {
	dice := 0
	if len(w.live) >= 3 {
		dice = rand.IntN(10)
	}
	if w.part.Keep && dice == 2 {
		dice = 7
	}
	if len(w.live) > 0 {
		select {
		case what := <-w.orders:
			w.stands = true
			if dice = 4; what == orderUpdate {
				dice = 5
			}
		default:
		}
	}
	switch {
	case dice < 2:
		id := bson.NewObjectID()
		if acked == w.wrote(ctx, n, w.write, []string{"users/" + id.Hex()}, func(ctx context.Context, version string, at collectionAt) error {
			c, err := at("users")
			if err == nil {
				_, err = c.InsertOne(ctx, userDoc(version, id, n))
			}
			return err
		}) {
			w.live = append(w.live, id)
		}
	case dice < 3:
		id := w.take()
		if wasRefused == w.wrote(ctx, 0, w.write, []string{"users/" + id.Hex()}, func(ctx context.Context, version string, at collectionAt) error {
			c, err := at("users")
			if err != nil {
				return err
			}
			res, err := c.DeleteOne(ctx, bson.M{"_id": userKey(version, id)})
			if err == nil && res.DeletedCount == 0 {
				err = appclient.ErrMoved
			}
			return err
		}) {
			w.live = append(w.live, id)
		}
	case dice < 5:
		id, order := w.take(), bson.NewObjectID()
		if unknown != w.wrote(ctx, n, w.transact, []string{"users/" + id.Hex(), "orders/" + order.Hex()}, func(ctx context.Context, version string, at collectionAt) error {
			orders, err := at("orders")
			if err == nil {
				err = update(ctx, version, at, id, n)
			}
			if err == nil {
				_, err = orders.InsertOne(ctx, orderDoc(version, order, id, n))
			}
			return err
		}) {
			w.live = append(w.live, id)
		}
	case dice < 8:
		id := w.take()
		if unknown != w.wrote(ctx, n, w.write, []string{"users/" + id.Hex()}, func(ctx context.Context, version string, at collectionAt) error {
			return update(ctx, version, at, id, n)
		}) {
			w.live = append(w.live, id)
		}
	default:
		w.read(ctx, w.live[rand.IntN(len(w.live))])
	}
}

func update(ctx context.Context, version string, at collectionAt, id bson.ObjectID, n int32) error {
	c, err := at("users")
	if err != nil {
		return err
	}
	res, err := c.UpdateOne(ctx, bson.M{"_id": userKey(version, id)}, bson.M{"$set": userSet(version, n)})
	if err == nil && res.MatchedCount == 0 {
		err = appclient.ErrMoved
	}
	return err
}

func (w *applicationWriter) take() bson.ObjectID {
	i := rand.IntN(len(w.live))
	id := w.live[i]
	w.live = slices.Delete(w.live, i, i+1)
	return id
}

// wrote makes a write of some records, by the operation n or a delete (0), and tells what
// became of it.
func (w *applicationWriter) wrote(ctx context.Context, n int32, by func(context.Context, func(context.Context, string, collectionAt) error) error, keys []string, do func(context.Context, string, collectionAt) error) became {
	state := ""
	if n > 0 {
		state = applicationState(n)
	}
	for _, key := range keys {
		w.tell(told{Begin: key, State: state})
	}
	version, runs := "", 0
	err := by(ctx, func(ctx context.Context, v string, at collectionAt) error {
		version = v
		if runs++; runs > 1 {
			w.tell(told{Retry: v})
		} else if w.stands {
			w.stands = false
			w.tell(told{Asleep: true})
			<-w.orders
		}
		return do(ctx, v, at)
	})
	switch {
	case err == nil:
		for _, key := range keys {
			w.tell(told{Ack: key, Version: version})
		}
		return acked
	case w.app == nil && refused(err):
		for _, key := range keys {
			w.tell(told{Refused: key})
		}
		return wasRefused
	}
	for _, key := range keys {
		w.tell(told{Unknown: key})
	}
	if !errors.Is(err, appclient.ErrUnknownOutcome) {
		w.tell(told{Fail: fmt.Sprintf("%v: %v", keys, err)})
	}
	return unknown
}

func (w *applicationWriter) read(ctx context.Context, id bson.ObjectID) {
	state, on := "", ""
	find := func(ctx context.Context, version string, at collectionAt) error {
		state, on = "", version
		c, err := at("users")
		if err != nil {
			return err
		}
		var doc struct{ N int32 }
		err = c.FindOne(ctx, bson.M{"_id": userKey(version, id)}).Decode(&doc)
		if errors.Is(err, mongo.ErrNoDocuments) {
			return nil
		}
		state = applicationState(doc.N)
		return err
	}
	var err error
	if w.app == nil {
		err = find(ctx, "v1", w.alone)
	} else {
		err = w.app.Read(ctx, func(ctx context.Context, at appclient.Place) error { return find(ctx, at.Version, at.Collection) })
	}
	const conversionFailure = 241
	var server mongo.ServerError
	switch {
	case err == nil:
		w.tell(told{Read: "users/" + id.Hex(), State: state, Version: on})
	case w.app == nil && errors.As(err, &server) && server.HasErrorCode(conversionFailure):
		w.tell(told{Gone: conversionFailure})
	default:
		w.tell(told{Fail: fmt.Sprintf("read users/%s: %v", id.Hex(), err)})
	}
}
