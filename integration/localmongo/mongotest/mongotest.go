// Package mongotest gives tests a real MongoDB: one replica set for all tests of
// a binary, and a database of its own for each test.
//
// A test binary calls Main from its TestMain:
//
//	func TestMain(m *testing.M) { mongotest.Main(m) }
//
// The server starts with the first test that asks for it. No MongoDB is a
// failure and never a skip: a run that tested nothing must not look green.
//
// It does not own servers that a test wants to stop or configure; those come
// from localmongo.Start with Own set, one per test.
package mongotest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller/integration/localmongo"
)

// DatabasePrefix starts the name of every database that tests make, so that
// leftovers on a server that outlives the tests are recognised.
const DatabasePrefix = "dbc_"

// stopLimit bounds clean-up, which must happen even when a test's own context
// has ended.
const stopLimit = 30 * time.Second

// shared is the server of this test binary.
var shared struct {
	mu      sync.Mutex
	hasMain bool
	started bool
	server  *localmongo.Server
	err     error
}

// Main runs the tests, stops the shared server and exits with the tests' code.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main without the exit, for a TestMain with more to do afterwards.
func Run(m *testing.M) int {
	shared.mu.Lock()
	shared.hasMain = true
	shared.mu.Unlock()
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop shared MongoDB:", err)
		code = max(code, 1)
	}
	return code
}

// Server returns the shared replica set of this test binary. Tests must not
// stop it or change settings of the whole cluster.
func Server(t testing.TB) *localmongo.Server {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.hasMain {
		t.Fatal("mongotest needs: func TestMain(m *testing.M) { mongotest.Main(m) }")
	}
	if !shared.started {
		shared.started = true
		// Not the context of this test: the server serves the others too.
		shared.server, shared.err = localmongo.Start(context.Background(), localmongo.Options{})
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// Database returns the shared server's connection string and the name of a
// database that no other test uses. It is dropped when the test ends.
func Database(t testing.TB) (uri, name string) {
	t.Helper()
	uri = Server(t).URI()
	name = DatabasePrefix + randomHex()
	t.Cleanup(func() {
		if err := drop(uri, name); err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	return uri, name
}

// Client returns a client of the shared server that is closed when the test
// ends, before the databases that the test asked for earlier are dropped.
func Client(t testing.TB) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(Server(t).URI()))
	if err != nil {
		t.Fatalf("connect to MongoDB: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		if err := client.Disconnect(ctx); err != nil {
			t.Errorf("disconnect from MongoDB: %v", err)
		}
	})
	return client
}

func drop(uri, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	dropErr := client.Database(name).Drop(ctx)
	if err := client.Disconnect(ctx); dropErr == nil {
		return err
	}
	return dropErr
}

func stop() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return shared.server.Stop(ctx)
}

func randomHex() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails, by its documentation
	return hex.EncodeToString(b)
}
