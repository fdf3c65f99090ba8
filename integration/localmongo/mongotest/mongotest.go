// Package mongotest gives tests a real MongoDB: one replica set, and one sharded cluster
// where tests ask for it, for all tests of a binary, and a database of its own for each
// test.
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
//
// It is not for users and may change with any version.
package mongotest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"dbcontroller.dev/integration/localmongo"
)

// DatabasePrefix starts the name of every database that tests make, so that
// leftovers on a server that outlives the tests are recognised.
const DatabasePrefix = "dbc_"

// stopLimit bounds clean-up, which must happen even when a test's own context
// has ended.
const stopLimit = 2 * time.Minute

// lazy is a server that starts with the first test that asks for it.
type lazy struct {
	mu      sync.Mutex
	started bool
	server  *localmongo.Server
	err     error
}

// The servers of this test binary.
var (
	shared        lazy
	sharedCluster lazy
	mainSeen      atomic.Bool
)

// Main runs the tests, stops the shared server and exits with the tests' code, or with 1 if
// a goroutine was left behind.
func Main(m *testing.M) {
	code := Run(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// Run is Main without the check for goroutines and the exit, for a TestMain with more to do
// afterwards.
func Run(m *testing.M) int {
	mainSeen.Store(true)
	code := m.Run()
	if err := errors.Join(shared.stop(), sharedCluster.stop()); err != nil {
		fmt.Fprintln(os.Stderr, "stop shared MongoDB:", err)
		code = max(code, 1)
	}
	return code
}

// Server returns the shared replica set of this test binary. Tests must not
// stop it or change settings of the whole cluster.
func Server(t testing.TB) *localmongo.Server {
	t.Helper()
	return shared.start(t, localmongo.Options{})
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
	t.Helper()
	return connect(t, Server(t).URI())
}

// connect returns a client that is closed when the test ends.
func connect(t testing.TB, uri string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
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

// start starts the server unless it runs.
func (l *lazy) start(t testing.TB, o localmongo.Options) *localmongo.Server {
	t.Helper()
	if !mainSeen.Load() {
		t.Fatal("mongotest needs: func TestMain(m *testing.M) { mongotest.Main(m) }")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.started {
		l.started = true
		// Not the context of this test: the server serves the others too.
		l.server, l.err = localmongo.Start(context.Background(), o)
	}
	if l.err != nil {
		t.Fatal(l.err)
	}
	return l.server
}

func (l *lazy) stop() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return l.server.Stop(ctx)
}

func randomHex() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails, by its documentation
	return hex.EncodeToString(b)
}
