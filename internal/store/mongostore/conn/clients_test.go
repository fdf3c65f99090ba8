package conn_test

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore/conn"
)

// TestSharedClient: the databases of one login have one client, which ends with the last of them. A login is
// a connection string and the contents of its certificate files. A failed start leaves it.
func TestSharedClient(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	uri, database := mongotest.Database(t)
	clients := conn.NewClients(3)
	open := func(cfg conn.Config) *conn.Conn {
		t.Helper()
		cfg.URI, cfg.Database, cfg.Clients = uri, database, clients
		c, err := conn.Open(ctx, cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first, second, other := open(conn.Config{}), open(conn.Config{}), open(conn.Config{AppName: "another"})
	renewed := open(conn.Config{Certificates: "others"})
	if first.Mongo != second.Mongo || first.Mongo == other.Mongo || first.Mongo == renewed.Mongo {
		t.Errorf("clients %p, %p, %p and %p, want the first two equal", first.Mongo, second.Mongo, other.Mongo, renewed.Mongo)
	}
	gone, stop := context.WithCancel(ctx)
	stop()
	if _, err := conn.Open(gone, conn.Config{URI: uri, Database: database, Clients: clients}, nil); err == nil {
		t.Error("opened although the caller is gone")
	}
	closes := func(c *conn.Conn) {
		t.Helper()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	closes(other)
	closes(renewed)
	closes(first)
	closes(first) // a second time takes nothing from the others
	if err := second.Mongo.Ping(ctx, readpref.Primary()); err != nil {
		t.Errorf("the second database, after the first was closed: %v", err)
	}
	closes(second)
	if err := second.Mongo.Ping(ctx, readpref.Primary()); err == nil {
		t.Error("the client outlives its last database")
	}
	again := open(conn.Config{})
	if again.Mongo == second.Mongo {
		t.Error("an ended client is used again")
	}
	closes(again)
}
