package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/upgradestate"
)

// TestSameVersionOtherPlace moves a version to another cluster under traffic, back, and
// there again, and on to the next version from there: managed and fixed-name kinds, byte for
// byte, with the application's index, and no call fails.
func TestSameVersionOtherPlace(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	other := start(ctx, t, localmongo.Options{Own: true})
	s := newSystem(ctx, t, settings{dbs: []string{"v1", "v1@b", "v2"}, uris: map[string]string{"v1@b": other.URI()}, copy: "{workers: 2}"})
	tr := newTraffic(ctx, s, 2*appClients*ownDocuments)
	if _, err := s.db["v1"].Collection(packagesKind).Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "name", Value: 1}}}); err != nil {
		t.Fatal(err)
	}
	s.controller("first", breakPoint{}).ready(ctx)
	s.controller("second", breakPoint{}).ready(ctx)
	s.awaitShards(ctx, "first", "second")
	tr.start(ctx, s.server("server", 0).ready(ctx))
	tr.awaitWrites(ctx, "v1", 10)
	for i, to := range []string{"v1@b", "v1", "v1@b", "v2"} {
		api := upgradestate.APIVersion(to)
		writes, packages := tr.processes.count(api), tr.packages.count(to)
		since := time.Now()
		s.beginTo(ctx, to)
		d := s.await(ctx, fmt.Sprintf("flip %d, to %s", i+1, to), flipped(to))
		t.Logf("flip %d to %s: %s after begin-upgrade, phases %v", i+1, to, time.Since(since).Round(time.Millisecond), d.LastSwitch.Millis)
		tr.await(ctx, api, writes+10, tr.processes)
		tr.await(ctx, to, packages+10, tr.packages)
		if _, err := s.index(ctx, to, "name_1"); err != nil {
			t.Error(err)
		}
		res, err := s.apis()[0].GetLocation(ctx, connect.NewRequest(&dbv1.GetLocationRequest{}))
		if err != nil || res.Msg.Version != to || res.Msg.Database != s.db[to].Name() {
			t.Errorf("the application is told %v, %v", res, err)
		}
		if i == 0 {
			s.inSync(ctx, tr, "v1")
		}
	}
	d, err := s.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tr.settle(ctx, d)
	s.inSync(ctx, tr, "v1@b")
}

// inSync waits until the application's documents are in a namespace that was left as they
// are in the one that is active.
func (s *system) inSync(ctx context.Context, tr *traffic, version string) {
	s.t.Helper()
	tr.pause.Lock()
	defer tr.pause.Unlock()
	eventually(ctx, s.t, version+" is in sync", func() error {
		old, err := s.rawPackages(ctx, version)
		if err != nil {
			return err
		}
		return tr.packages.check(version, old)
	})
}

// index finds an index of the application's collection.
func (s *system) index(ctx context.Context, version, name string) (bson.Raw, error) {
	cursor, err := s.db[version].Collection(packagesKind).Indexes().List(ctx)
	if err != nil {
		return nil, err
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	for cursor.Next(ctx) {
		if cursor.Current.Lookup("name").StringValue() == name {
			return cursor.Current, nil
		}
	}
	return nil, fmt.Errorf("%s in %s has no index %s (%v)", packagesKind, version, name, cursor.Err())
}

// TestOneVersionMoves: a service of one version, of which the configuration knows the names
// of its collections and nothing else.
func TestOneVersionMoves(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{service: "shop", dbs: []string{"v1@old", "v1@new"}, kinds: "[{from: packages}, {from: audit}]"})
	c := collections{t}
	for i := range 100 {
		c.insert(s.db["v1@old"], packagesKind, `{"z":{"$numberLong":"%d"},"_id":{"a":%[1]d},"list":[{"$date":"2026-01-02T03:04:05Z"},null]}`, i)
	}
	c.insert(s.db["v1@old"], "audit", `{"_id":1}`)
	before, err := findAll(ctx, s, "v1@old")
	if err != nil {
		t.Fatal(err)
	}
	s.controller("controller", breakPoint{}).ready(ctx)
	for _, to := range []string{"v1@new", "v1@old", "v1@new"} {
		s.beginTo(ctx, to)
		s.await(ctx, "the move to "+to, flipped(to))
	}
	after, err := findAll(ctx, s, "v1@new")
	if err != nil {
		t.Fatal(err)
	}
	if before != after || strings.Count(after, "list") != 100 {
		t.Errorf("documents are not the same:\n%.300s\n%.300s", before, after)
	}
	c.has(s.db["v1@new"], "audit", `{"_id":1}`)
}

// findAll is the application's collection to the byte.
func findAll(ctx context.Context, s *system, version string) (string, error) {
	cursor, err := s.db[version].Collection(packagesKind).Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return "", err
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	var all strings.Builder
	for cursor.Next(ctx) {
		all.Write(cursor.Current)
	}
	return all.String(), cursor.Err()
}
