package localmongo

import (
	"errors"
	"net"
	"os/exec"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localdocker"
)

// TestContainer: where no mongod is, a container serves. It is a replica set, for transactions and
// change streams, and is gone after Stop.
func TestContainer(t *testing.T) {
	localdocker.Require(t)
	t.Parallel()
	ctx := t.Context()
	bare := newFinder()
	bare.getenv = func(string) string { return "" }
	bare.lookPath = func(string) (string, error) { return "", exec.ErrNotFound }
	bare.cacheDir = func() (string, error) { return "", errors.New("no home") }
	s, err := startFound(ctx, Options{}, bare)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(ctx) })
	client, err := mongo.Connect(options.Client().ApplyURI(s.URI()))
	if err != nil {
		t.Fatal(err)
	}
	c := client.Database("dbc_container").Collection("c")
	changes, err := c.Watch(ctx, mongo.Pipeline{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}}); err != nil {
		t.Fatal(err)
	}
	if !changes.Next(ctx) {
		t.Errorf("no change arrives: %v", changes.Err())
	}
	// Before the server goes: afterwards they would wait for it.
	_ = changes.Close(ctx)
	disconnect(ctx, client)
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	address := options.Client().ApplyURI(s.URI()).Hosts[0]
	if open, err := net.Dial("tcp", address); err == nil {
		_ = open.Close()
		t.Errorf("the container still listens at %s after Stop", address)
	}
}
