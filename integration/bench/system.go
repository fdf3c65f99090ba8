package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"dbcontroller/cmd/dbcontroller/app"
	"dbcontroller/config"
	"dbcontroller/controller"
	"dbcontroller/coord/memcoord"
	"dbcontroller/deployment"
	"dbcontroller/record"
	"dbcontroller/record/mongostore"
	"dbcontroller/transform"
	"dbcontroller/upgradestate"
)

const (
	ring           = 16
	deploymentName = "services/bench/deployments/here"
	kindName       = "documents"
)

// system is a deployment of one managed kind, whose records are not changed on the way, and a
// controller of it as the program starts it. The coordination store is in memory: what is
// measured is the controller and the database, not etcd.
type system struct {
	client *mongo.Client
	names  map[string]string // database names by version
	coord  *memcoord.Store
	store  *deployment.Store
	old    *mongostore.Namespace        // as a server of the service has it
	kinds  map[string]upgradestate.Kind // by version
	loads  loads

	cancel context.CancelFunc // of the controller
	done   chan struct{}      // closed when it has ended
	err    error              // why, once done is closed
}

// open makes the databases, by names that no other run has, and starts the controller. Nothing
// is copied before begin.
func open(ctx context.Context, uri string, o settings) (_ *system, err error) {
	s := &system{
		names: map[string]string{"v1": scratch("old"), "v2": scratch("new")}, kinds: map[string]upgradestate.Kind{},
		done: make(chan struct{}),
	}
	if s.client, err = mongo.Connect(options.Client().ApplyURI(uri)); err != nil {
		return nil, err
	}
	if s.old, err = mongostore.Open(ctx, mongostore.Config{URI: uri, Database: s.names["v1"], Log: zap.NewNop()}); err != nil {
		return nil, errors.Join(err, s.client.Disconnect(ctx))
	}
	if err := s.start(ctx, uri, o.workers); err != nil {
		return nil, errors.Join(err, s.old.Close(ctx), s.client.Disconnect(ctx))
	}
	soon, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	d, err := s.await(soon, func(d upgradestate.Deployment) bool { return len(d.Available) > 0 })
	if err == nil {
		err = s.awaitShards(soon)
	}
	if err != nil {
		return nil, errors.Join(err, s.close(context.WithoutCancel(ctx)))
	}
	for version := range s.names {
		ns, _ := d.Namespace(version)
		s.kinds[version], _ = ns.Kind(kindName)
	}
	return s, nil
}

func scratch(what string) string { return "dbc_bench_" + strings.ToLower(rand.Text()[:8]) + "_" + what }

// configuration is what an operator would write. Copying does not yield to the clients of the
// databases, because how fast it can be is the question; an upgrade that is ready stays so.
const configuration = `
deployment: %s
sharding: {ringSize: %d}
copy: {auto: false, workers: %d, throttle: "off"}
switch: {automatic: false}
initialVersion: v1
operator: {listen: "127.0.0.1:0"}
api: {listen: "127.0.0.1:0"}
dbs:
- {namespace: bench/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: $(URI), database: %s}}
- {namespace: bench/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: $(URI), database: %s}}
`

// start runs the controller until close is called.
func (s *system) start(ctx context.Context, uri string, workers int) error {
	text := fmt.Sprintf(configuration, deploymentName, ring, workers, s.names["v1"], s.names["v2"])
	cfg, err := config.Parse("bench.yaml", []byte(text), func(string) (string, bool) { return uri, true })
	if err != nil {
		return err
	}
	r := transform.NewRegistry("bench")
	same := func(src, _ transform.Group) ([]record.Record, error) { return src.Records, nil }
	side := transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: kindName}}}}
	err = r.Add("v1", "v2", transform.Spec{Name: kindName, Revision: "1", Old: side, New: side, Up: same, Down: same})
	if err != nil {
		return err
	}
	s.coord = memcoord.New()
	s.store = deployment.New(s.coord, deploymentName, deployment.Config{})
	program := app.New(cfg, r, s.coord, app.Options{Options: controller.Options{ID: "bench", Wrap: s.loads.wrap}}, warnings())
	ctx, s.cancel = context.WithCancel(ctx)
	go func() {
		defer close(s.done)
		s.err = program.Run(ctx)
	}()
	return nil
}

// warnings shows what a controller that does not get on says.
func warnings() *zap.Logger {
	form := zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig())
	return zap.New(zapcore.NewCore(form, zapcore.Lock(os.Stderr), zapcore.WarnLevel))
}

// begin begins the upgrade, which stays ready and is never switched.
func (s *system) begin(ctx context.Context) error {
	_, err := s.store.Apply(ctx, upgradestate.Begin{ID: "bench", TargetVersion: "v2", Policy: upgradestate.Policy{Hold: true}})
	return err
}

// await blocks until the record satisfies ok.
func (s *system) await(ctx context.Context, ok func(upgradestate.Deployment) bool) (d upgradestate.Deployment, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := s.store.Watch(ctx)
	for open := true; open; {
		select {
		case <-s.done:
			return d, s.ended()
		case d, open = <-watch:
			if open && ok(d) {
				return d, nil
			}
		}
	}
	return d, ctx.Err()
}

// awaitShards blocks until the controller owns the whole ring.
func (s *system) awaitShards(ctx context.Context) error {
	return s.poll(ctx, func() (bool, error) {
		locks, _, err := s.coord.List(ctx, s.store.Root()+"/shards/")
		return len(locks) == ring, err
	})
}

// poll asks ok, about every 20 ms, until it is.
func (s *system) poll(ctx context.Context, ok func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done:
			return s.ended()
		case <-tick.C:
		}
	}
}

// ended says that the controller has ended before it was told to.
func (s *system) ended() error {
	return fmt.Errorf("the controller has ended: %w", cmp.Or(s.err, context.Canceled))
}

// halt ends the controller.
func (s *system) halt() error {
	s.cancel()
	<-s.done
	return s.err
}

// close ends the controller and drops everything.
func (s *system) close(ctx context.Context) error {
	return errors.Join(s.halt(), s.client.Database(s.names["v1"]).Drop(ctx), s.client.Database(s.names["v2"]).Drop(ctx),
		s.old.Close(ctx), s.client.Disconnect(ctx))
}

// token is the source's, as the record has it before any fence.
func (s *system) token() record.Token {
	return record.Token{Kind: kindName, Name: s.kinds["v1"].Physical, ID: s.kinds["v1"].ID}
}

// collection is the kind's in a version.
func (s *system) collection(version string) *mongo.Collection {
	return s.client.Database(s.names[version]).Collection(s.kinds[version].Physical)
}

// fill writes n documents of about size bytes.
func (s *system) fill(ctx context.Context, n, size int) error {
	col := s.collection("v1")
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	const batch = 2000
	for from := 0; from < n; from += batch {
		g.Go(func() error {
			docs := make([]any, 0, batch)
			for i := from; i < min(n, from+batch); i++ {
				docs = append(docs, document(i, size))
			}
			_, err := col.InsertMany(ctx, docs)
			return err
		})
	}
	return g.Wait()
}

func document(i, size int) bson.D {
	return bson.D{
		{Key: "_id", Value: fmt.Sprintf("document-%09d", i)}, {Key: "n", Value: int64(i)}, {Key: "at", Value: int64(0)},
		{Key: "owner", Value: bson.D{{Key: "name", Value: "somebody"}, {Key: "mail", Value: "somebody@example.com"}}},
		{Key: "tags", Value: bson.A{"a", "b", "c"}},
		{Key: "payload", Value: strings.Repeat("x", max(0, size-170))},
	}
}
