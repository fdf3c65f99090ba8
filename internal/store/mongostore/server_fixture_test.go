package mongostore

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/record"
)

func uniqueMail(extra ...bson.E) record.Shape {
	spec := bson.D{{Key: "v", Value: 2}, {Key: "key", Value: bson.D{{Key: "mail", Value: 1}}}, {Key: "name", Value: "mail_1"}, {Key: "unique", Value: true}}
	return record.Shape{Indexes: []bson.Raw{mustMarshal(append(spec, extra...))}}
}

// start runs a server of the test's own.
func start(t *testing.T, o localmongo.Options) *localmongo.Server {
	t.Helper()
	s, err := localmongo.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// watched is a client whose answers a test can hold back to do something meanwhile.
type watched struct {
	*bench
	mu    sync.Mutex
	after map[string]func(failed bool) // by command, taken once
}

// unreliable is a namespace on a server that takes configureFailPoint.
func unreliable(t *testing.T) *watched {
	t.Helper()
	s := start(t, localmongo.Options{TestCommands: true, Own: true})
	w := &watched{bench: benchAt(t, s.URI(), "app"), after: map[string]func(bool){}}
	take := func(command string, failed bool) {
		w.mu.Lock()
		f := w.after[command]
		delete(w.after, command)
		w.mu.Unlock()
		if f != nil {
			f(failed)
		}
	}
	client, err := mongo.Connect(options.Client().ApplyURI(s.URI()).SetAppName("lossy").
		SetMonitor(&event.CommandMonitor{
			Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { take(e.CommandName, false) },
			Failed:    func(_ context.Context, e *event.CommandFailedEvent) { take(e.CommandName, true) },
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	w.Namespace = newNamespace(client, "app", "test", zaptest.NewLogger(t))
	return w
}

// fail makes the next command of that name fail once, for the lossy client only.
func (w *watched) fail(t *testing.T, command string, data ...bson.E) {
	t.Helper()
	w.failTimes(t, 1, command, data...)
}

func (w *watched) failTimes(t *testing.T, times int, command string, data ...bson.E) {
	t.Helper()
	err := w.raw.Client().Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.D{{Key: "times", Value: times}}},
		{Key: "data", Value: append(bson.D{{Key: "failCommands", Value: bson.A{command}}, {Key: "appName", Value: "lossy"}}, data...)},
	}).Err()
	if err != nil {
		t.Fatal(err)
	}
}

// once does something after the next command of that name has ended, before the client
// learns of it.
func (w *watched) once(command string, do func(failed bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after[command] = do
}

// replicas is a set of three nodes of which tests reach each one alone.
type replicas struct {
	*bench
	server *localmongo.Server
	direct []*Namespace
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	s := start(t, localmongo.Options{Nodes: 3, TestCommands: true, Own: true})
	r := &replicas{bench: benchAt(t, s.URI(), "app"), server: s}
	for _, node := range s.Nodes() {
		client, err := mongo.Connect(options.Client().
			ApplyURI("mongodb://" + node.Addr() + "/?directConnection=true&serverSelectionTimeoutMS=2000"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
		r.direct = append(r.direct, newNamespace(client, "app", node.Addr(), zaptest.NewLogger(t)))
	}
	return r
}

// primary waits until one node, other than not, is primary for writes.
func (r *replicas) primary(t *testing.T, not int) int {
	t.Helper()
	found := -1
	err := backoff.Retry(func() error {
		for i, ns := range r.direct {
			if i == not || r.server.Nodes()[i].Pid() == 0 {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			hello, err := ns.hello(ctx)
			cancel()
			if err != nil {
				continue
			}
			if is, _ := hello.Lookup("isWritablePrimary").BooleanOK(); is {
				found = i
				return nil
			}
		}
		return errors.New("no primary")
	}, backoff.WithContext(backoff.NewConstantBackOff(50*time.Millisecond), t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// replication stops or continues what the secondaries fetch.
func (r *replicas) replication(t *testing.T, primary int, on bool) {
	t.Helper()
	mode := "alwaysOn"
	if on {
		mode = "off"
	}
	for i, ns := range r.direct {
		if i == primary {
			continue
		}
		err := ns.admin().RunCommand(t.Context(), bson.D{{Key: "configureFailPoint", Value: "stopReplProducer"}, {Key: "mode", Value: mode}}).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func openSuite(t *testing.T, uri, name string) *Namespace {
	t.Helper()
	ns, err := Open(t.Context(), Config{URI: uri, Database: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// newNamespace returns the namespace of a database. It sends no command.
func newNamespace(client *mongo.Client, database, location string, log *zap.Logger) *Namespace {
	return New(newConn(client, database, location, log))
}
