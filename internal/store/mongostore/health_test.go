package mongostore_test

import (
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/internal/store/mongostore/storetest"
)

// TestHealth: an idle server is not strained, one that works is busier, and the shares are shares.
func TestHealth(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	tok := e.Managed("m")
	first, err := e.NS.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if first.CPU != 0 || first.Queue != 0 {
		t.Errorf("a first look knows of no time: %+v", first)
	}
	if first.CacheUsed <= 0 || first.CacheUsed > 1 || first.CacheDirty < 0 || first.CacheDirty > first.CacheUsed {
		t.Errorf("cache: %+v", first)
	}
	if first.Lag < 0 || first.Lag > 5*time.Second {
		t.Errorf("one node is %s behind itself", first.Lag)
	}
	for i := range 2000 {
		e.Insert(tok, bson.D{{Key: "_id", Value: i}})
	}
	busy, err := e.NS.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if busy.CPU <= 0 || busy.CPU > 1.1 || busy.Queue <= 0 {
		t.Errorf("a server that has worked: %+v", busy)
	}
}

// TestHealthNeedsAPrivilege, and says which.
func TestHealthNeedsAPrivilege(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t, localmongo.Options{Auth: true, Own: true})
	b := storetest.BenchAt(t, srv.URI(), "d")
	role := func(user string, roles ...bson.D) *mongostore.Namespace {
		t.Helper()
		if err := b.Admin().RunCommand(t.Context(), bson.D{
			{Key: "createUser", Value: user}, {Key: "pwd", Value: "p"}, {Key: "roles", Value: roles},
		}).Err(); err != nil {
			t.Fatal(err)
		}
		uri, err := url.Parse(srv.URI())
		if err != nil {
			t.Fatal(err)
		}
		uri.User = url.UserPassword(user, "p")
		return storetest.OpenSuite(t, uri.String(), "d")
	}
	data := bson.D{{Key: "role", Value: "readWrite"}, {Key: "db", Value: "d"}}
	if _, err := role("poor", data).Health(t.Context()); err == nil || !strings.Contains(err.Error(), "clusterMonitor") {
		t.Errorf("without the privilege: %v", err)
	}
	if _, err := role("rich", data, bson.D{{Key: "role", Value: "clusterMonitor"}, {Key: "db", Value: "admin"}}).Health(t.Context()); err != nil {
		t.Errorf("with the role that was asked for: %v", err)
	}
}

// TestHealthOfManyAtOnce: several controllers' goroutines may look.
func TestHealthOfManyAtOnce(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				if _, err := e.NS.Health(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
