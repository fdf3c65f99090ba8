package integration_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/proxy"
)

// startProxy starts a proxy before the application of a system, and returns its address.
func (s *system) startProxy(ctx context.Context, api string, collections ...string) string {
	s.t.Helper()
	return s.startProxyOf(ctx, api, nil, collections...)
}

// startProxyOf starts a proxy with users.
func (s *system) startProxyOf(ctx context.Context, api string, users []proxy.User, collections ...string) string {
	s.t.Helper()
	kinds := map[string]string{}
	for _, c := range collections {
		kinds[c] = c
	}
	p, err := proxy.New(ctx, proxy.Config{
		Upstream: s.uris["v1"], Users: users,
		Deployments: []proxy.Deployment{{
			Controllers: []string{api}, Application: "proxy", Database: s.db["v1"].Name(), Collections: kinds, URIs: s.uris,
		}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			s.t.Error(err)
		}
		if err := <-served; err != nil {
			s.t.Error(err)
		}
	})
	return l.Addr().String()
}

// bank is an unmodified application: workers move money between accounts in transactions, count their
// calls by $inc, and insert an entry for each call.
type bank struct {
	db    *mongo.Database
	calls [8]int64 // acknowledged, by worker
	done  atomic.Int64
}

const accounts = 20

func (b *bank) open(ctx context.Context) error {
	var docs []any
	for i := range accounts {
		docs = append(docs, bson.D{{Key: "_id", Value: i}, {Key: "money", Value: 100}})
	}
	for i := range b.calls {
		docs = append(docs, bson.D{{Key: "_id", Value: fmt.Sprintf("calls-%d", i)}, {Key: "n", Value: 0}})
	}
	_, err := b.db.Collection("accounts").InsertMany(ctx, docs)
	return err
}

func (b *bank) work(ctx context.Context, worker int) error {
	work := context.WithoutCancel(ctx)
	accountsOf, entries := b.db.Collection("accounts"), b.db.Collection("entries")
	session, err := b.db.Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(work)
	work = mongo.NewSessionContext(work, session) // it reads its own writes, from any proxy and member
	for ctx.Err() == nil {
		from, to := rand.IntN(accounts), rand.IntN(accounts)
		_, err := session.WithTransaction(work, func(ctx context.Context) (any, error) {
			if _, err := accountsOf.UpdateOne(ctx, bson.D{{Key: "_id", Value: from}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "money", Value: -1}}}}); err != nil {
				return nil, err
			}
			_, err := accountsOf.UpdateOne(ctx, bson.D{{Key: "_id", Value: to}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "money", Value: 1}}}})
			return nil, err
		})
		if err != nil {
			return fmt.Errorf("transaction: %w", err)
		}
		n := b.calls[worker] + 1
		if _, err := accountsOf.UpdateOne(work, bson.D{{Key: "_id", Value: fmt.Sprintf("calls-%d", worker)}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}); err != nil {
			return fmt.Errorf("count: %w", err)
		}
		b.calls[worker] = n
		if _, err := entries.InsertMany(work, []any{bson.D{{Key: "_id", Value: fmt.Sprintf("%d-%d-a", worker, n)}}, bson.D{{Key: "_id", Value: fmt.Sprintf("%d-%d-b", worker, n)}}}); err != nil {
			return fmt.Errorf("insert: %w", err)
		}
		if one := entries.FindOne(work, bson.D{{Key: "_id", Value: fmt.Sprintf("%d-%d-a", worker, n)}}); one.Err() != nil {
			return fmt.Errorf("read my own write: %w", one.Err())
		}
		b.done.Add(1)
	}
	return nil
}

// check compares what the data says with what was acknowledged.
func (b *bank) check(ctx context.Context, t *testing.T) {
	t.Helper()
	var all []bson.M
	found, err := b.db.Collection("accounts").Find(ctx, bson.D{})
	if err == nil {
		err = found.All(ctx, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	money := int32(0)
	for _, a := range all {
		if m, ok := a["money"].(int32); ok {
			money += m
		}
		for i, n := range b.calls {
			if a["_id"] == fmt.Sprintf("calls-%d", i) && fmt.Sprint(a["n"]) != fmt.Sprint(n) {
				t.Errorf("worker %d was told of %d calls, and the data has %v", i, n, a["n"])
			}
		}
	}
	total := int64(0)
	for _, n := range b.calls {
		total += n
	}
	if money != 100*accounts || len(all) != accounts+len(b.calls) {
		t.Errorf("%d accounts have %d in all, want %d with %d", len(all), money, accounts+len(b.calls), 100*accounts)
	}
	if n, err := b.db.Collection("entries").CountDocuments(ctx, bson.D{}); err != nil || n != 2*total {
		t.Errorf("%d entries, %v, want %d", n, err, 2*total)
	}
	t.Logf("%d calls", total)
}

// TestProxyMoves: an unmodified application is switched to another cluster and back behind two proxies. It
// sees no error, reads its own writes, and nothing is lost or made twice.
func TestProxyMoves(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s := newSystem(ctx, t, settings{
		service: "bank", lens: "lens: 1\noperations: []\n",
		kinds: "[{from: accounts, to: accounts, lens: packages.yaml}, {from: entries, to: entries, lens: packages.yaml}]",
		uris: map[string]string{
			"v1": start(ctx, t, localmongo.Options{Own: true, Nodes: 3}).URI(), "v2": start(ctx, t, localmongo.Options{Own: true}).URI(),
		},
	})
	for _, name := range []string{"accounts", "entries"} {
		if err := s.db["v1"].CreateCollection(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	api, _ := s.controller("controller", breakPoint{}).ready(ctx).addresses()
	addresses := s.startProxy(ctx, api, "accounts", "entries") + "," + s.startProxy(ctx, api, "accounts", "entries")
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + addresses + "/?w=majority&readPreference=secondaryPreferred"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // the test ends
	b := &bank{db: client.Database(s.db["v1"].Name())}
	if err := b.open(ctx); err != nil {
		t.Fatal(err)
	}
	working, stop := context.WithCancel(ctx)
	g, working := errgroup.WithContext(working)
	for i := range b.calls {
		g.Go(func() error { return b.work(working, i) })
	}
	var once sync.Once
	defer once.Do(func() { stop(); _ = g.Wait() })
	for _, v := range []string{"v2", "v1", "v2"} {
		s.beginTo(ctx, v)
		s.await(ctx, "the flip to "+v, flipped(v))
		d, err := s.record.Get(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("switch to %s: %v", v, d.LastSwitch.Millis)
		// Each worker makes some calls at the new place.
		before := b.done.Load()
		eventually(ctx, t, "calls after the switch", func() error {
			// A worker that failed tells why in the end.
			if n := b.done.Load() - before; n < 20*int64(len(b.calls)) && working.Err() == nil {
				return fmt.Errorf("%d calls", n)
			}
			return nil
		})
	}
	once.Do(stop)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	b.check(ctx, t)
}
