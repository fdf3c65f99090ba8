package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller/coord/memcoord"
	"dbcontroller/deployment"
	"dbcontroller/record"
	"dbcontroller/record/mongostore"
	"dbcontroller/shards"
	"dbcontroller/syncer"
	"dbcontroller/transform"
	"dbcontroller/upgradestate"
	"dbcontroller/verify"
)

const ring = 16

// system is two databases and a deployment in memory: what is measured is the engine and
// the database, not etcd.
type system struct {
	client   *mongo.Client
	uri      string
	old, new *mongostore.Namespace
	names    map[string]string // database names by version
	dir      transform.Direction
	store    *deployment.Store
	coord    *memcoord.Store
	kind     upgradestate.Kind // of the source
}

// open makes a system of one managed kind whose records are not changed on the way.
func open(ctx context.Context, uri string) (*system, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return nil, err
	}
	s := &system{client: client, uri: uri, names: map[string]string{"v1": scratch("old")}}
	return s, s.connect(ctx)
}

func scratch(what string) string { return "dbc_bench_" + strings.ToLower(rand.Text()[:8]) + "_" + what }

// again is a system with the same source and a fresh target and deployment.
func (s *system) again(ctx context.Context) (*system, error) {
	t := &system{client: s.client, uri: s.uri, names: map[string]string{"v1": s.names["v1"]}}
	return t, t.connect(ctx)
}

func (s *system) connect(ctx context.Context) error {
	s.names["v2"] = scratch("new")
	r := transform.NewRegistry("bench")
	same := func(src, _ transform.Group) ([]record.Record, error) { return src.Records, nil }
	kind := transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "documents"}}}}
	err := r.Add("v1", "v2", transform.Spec{Name: "documents", Revision: "1", Old: kind, New: kind, Up: same, Down: same})
	if err != nil {
		return err
	}
	if s.dir, err = r.Direction("v1", "v2"); err != nil {
		return err
	}
	s.coord = memcoord.New()
	s.store = deployment.New(s.coord, "services/bench/deployments/here", deployment.Config{})
	d, err := s.store.Create(ctx, "v1", ring)
	if err != nil {
		return err
	}
	for _, v := range []string{"v1", "v2"} {
		ns, err := mongostore.Open(ctx, mongostore.Config{URI: s.uri, Database: s.names[v], Log: zap.NewNop()})
		if err != nil {
			return err
		}
		announced, err := syncer.Provision(ctx, ns, d, v, v, r.Kinds(v), func(string) record.FenceClass { return "" })
		if err != nil {
			return err
		}
		if d, err = s.store.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: announced}); err != nil {
			return err
		}
		if v == "v1" {
			s.old, s.kind = ns, announced.Kinds[0]
		} else {
			s.new = ns
		}
	}
	return nil
}

// dropTarget ends a system that another one shares the source with.
func (s *system) dropTarget(ctx context.Context) error {
	return errors.Join(s.client.Database(s.names["v2"]).Drop(ctx), s.old.Close(ctx), s.new.Close(ctx))
}

// close drops everything.
func (s *system) close(ctx context.Context) error {
	return errors.Join(s.client.Database(s.names["v1"]).Drop(ctx), s.dropTarget(ctx), s.client.Disconnect(ctx))
}

// fill writes n documents of about size bytes.
func (s *system) fill(ctx context.Context, n, size int) error {
	col := s.client.Database(s.names["v1"]).Collection(s.kind.Physical)
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

// start runs a controller's engine on all shards until stop is called.
func (s *system) start(ctx context.Context, workers int) (e *syncer.Engine, stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	pool := shards.New(s.coord, shards.Config{Prefix: s.store.Root(), ID: "bench", Ring: ring, Log: zap.NewNop()})
	e = syncer.New(syncer.Parts{
		Source: s.old, Target: s.new, Direction: s.dir, Deployments: s.store, Journal: s.store,
		Ownership: pool, Comparer: verify.New(s.old, s.new, s.dir), Lease: pool.Lease, Log: zap.NewNop(),
	}, syncer.Config{Owner: "bench", Epoch: 1, Ring: ring, Workers: workers, Copy: true})
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return pool.Run(gctx) })
	g.Go(func() error { return e.Run(gctx) })
	return e, func() error {
		cancel()
		if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}
}
