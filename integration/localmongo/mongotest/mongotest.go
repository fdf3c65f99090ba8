// Package mongotest gives tests a real MongoDB. All tests of a binary share one replica set, and
// one sharded cluster if a test asks for it. Each test gets its own database.
//
// A test binary calls Main from its TestMain:
//
//	func TestMain(m *testing.M) { mongotest.Main(m) }
//
// The server starts with the first test that asks for it. If no MongoDB is available, the test
// fails and never skips: a run that tested nothing must not look green.
//
// The package does not own servers that a test wants to stop or configure. Such a test calls
// localmongo.Start with Own set.
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

// DatabasePrefix begins the name of each test database. It identifies leftovers on a server that
// outlives the tests.
const DatabasePrefix = "dbc_"

// stopLimit bounds clean-up, which must run even if a test's own context has ended.
const stopLimit = 2 * time.Minute

// lazy is a server that starts on first use.
type lazy struct {
	mu      sync.Mutex
	started bool
	server  *localmongo.Server
	err     error
}

// Servers of this test binary.
var (
	shared        lazy
	sharedCluster lazy
	mainSeen      atomic.Bool
)

// Main runs the tests, stops the shared servers and exits with the tests' code. It exits with 1 if
// a goroutine is left over.
func Main(m *testing.M) {
	// Run stops the servers first: a goroutine waits for each of their processes.
	code := Run(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// Run is Main without the check of goroutines and without the exit, for a TestMain with further
// work.
func Run(m *testing.M) int {
	mainSeen.Store(true)
	code := m.Run()
	if err := errors.Join(shared.stop(), sharedCluster.stop()); err != nil {
		fmt.Fprintln(os.Stderr, "stop shared MongoDB:", err)
		code = max(code, 1)
	}
	return code
}

// Server returns the shared replica set of this test binary. Tests must not stop it or change
// cluster-wide settings.
func Server(t testing.TB) *localmongo.Server {
	t.Helper()
	return shared.start(t, localmongo.Options{})
}

// Database returns the shared server's connection string and the name of a database that no other
// test uses. The database is dropped when the test ends.
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

// Client returns a client of the shared server. It is closed when the test ends, before databases
// that the test has asked for earlier are dropped.
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
		// goleak in Main would report the connections of a client that stays open.
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
	// A client of its own, because the test's clients may be closed already.
	dropErr := client.Database(name).Drop(ctx)
	if err := client.Disconnect(ctx); dropErr == nil {
		return err
	}
	return dropErr
}

// start starts the server on the first call. A failed start is not retried.
func (l *lazy) start(t testing.TB, o localmongo.Options) *localmongo.Server {
	t.Helper()
	// Without Main no code would stop the server at the end.
	if !mainSeen.Load() {
		t.Fatal("mongotest needs: func TestMain(m *testing.M) { mongotest.Main(m) }")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.started {
		l.started = true
		// Not this test's context: the server outlives the test.
		l.server, l.err = localmongo.Start(context.Background(), o)
	}
	// Each test fails with the first error. A second start would only take long to fail again.
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
