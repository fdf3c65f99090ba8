package storetest

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
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// UniqueMail is a shape with a unique index on mail.
func UniqueMail(extra ...bson.E) record.Shape {
	spec := bson.D{{Key: "v", Value: 2}, {Key: "key", Value: bson.D{{Key: "mail", Value: 1}}}, {Key: "name", Value: "mail_1"}, {Key: "unique", Value: true}}
	return record.Shape{Indexes: []bson.Raw{wire.MustMarshal(append(spec, extra...))}}
}

// Start runs a server of the test's own.
func Start(t *testing.T, o localmongo.Options) *localmongo.Server {
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
	*Bench
	mu    sync.Mutex
	after map[string]func(failed bool) // by command, taken once
}

// Unreliable is a namespace on a server that takes configureFailPoint.
func Unreliable(t *testing.T) *watched {
	t.Helper()
	s := Start(t, localmongo.Options{TestCommands: true, Own: true})
	w := &watched{Bench: BenchAt(t, s.URI(), "app"), after: map[string]func(bool){}}
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
	w.Namespace = NewNamespace(client, "app", "test", zaptest.NewLogger(t))
	return w
}

// Fail makes the next command of that name fail once, for the lossy client only.
func (w *watched) Fail(t *testing.T, command string, data ...bson.E) {
	t.Helper()
	w.FailTimes(t, 1, command, data...)
}

// FailTimes makes the next commands of a name fail.
func (w *watched) FailTimes(t *testing.T, times int, command string, data ...bson.E) {
	t.Helper()
	err := w.Raw.Client().Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.D{{Key: "times", Value: times}}},
		{Key: "data", Value: append(bson.D{{Key: "failCommands", Value: bson.A{command}}, {Key: "appName", Value: "lossy"}}, data...)},
	}).Err()
	if err != nil {
		t.Fatal(err)
	}
}

// Once does something after the next command of that name has ended, before the client
// learns of it.
func (w *watched) Once(command string, do func(failed bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after[command] = do
}

// replicas is a set of three nodes of which tests reach each one alone.
type replicas struct {
	*Bench
	Server *localmongo.Server
	Direct []*mongostore.Namespace
}

// NewReplicas starts a replica set of three members.
func NewReplicas(t *testing.T) *replicas {
	t.Helper()
	s := Start(t, localmongo.Options{Nodes: 3, TestCommands: true, Own: true})
	r := &replicas{Bench: BenchAt(t, s.URI(), "app"), Server: s}
	for _, node := range s.Nodes() {
		client, err := mongo.Connect(options.Client().
			ApplyURI("mongodb://" + node.Addr() + "/?directConnection=true&serverSelectionTimeoutMS=2000"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
		r.Direct = append(r.Direct, NewNamespace(client, "app", node.Addr(), zaptest.NewLogger(t)))
	}
	return r
}

// Primary waits until one node, other than not, is primary for writes.
func (r *replicas) Primary(t *testing.T, not int) int {
	t.Helper()
	found := -1
	err := backoff.Retry(func() error {
		for i, ns := range r.Direct {
			if i == not || r.Server.Nodes()[i].Pid() == 0 {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			hello, err := ns.Hello(ctx)
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

// Freeze stops the process of a node, which its clients learn only by time limits.
func (r *replicas) Freeze(t *testing.T, node int) {
	t.Helper()
	// The remaining secondary may try the frozen node again, and asks it for a minute otherwise.
	for _, ns := range r.Direct {
		err := ns.Admin().RunCommand(t.Context(), bson.D{{Key: "setParameter", Value: 1}, {Key: "oplogInitialFindMaxSeconds", Value: 3}}).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Server.Nodes()[node].Pause(); err != nil {
		t.Fatal(err)
	}
}

// Replication stops or continues what the secondaries fetch.
func (r *replicas) Replication(t *testing.T, primary int, on bool) {
	t.Helper()
	mode := "alwaysOn"
	if on {
		mode = "off"
	}
	for i, ns := range r.Direct {
		if i == primary {
			continue
		}
		err := ns.Admin().RunCommand(t.Context(), bson.D{{Key: "configureFailPoint", Value: "stopReplProducer"}, {Key: "mode", Value: mode}}).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// OpenSuite opens a namespace and closes it at the end of the test.
func OpenSuite(t *testing.T, uri, name string) *mongostore.Namespace {
	t.Helper()
	ns, err := mongostore.Open(t.Context(), conn.Config{URI: uri, Database: name})
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

// NewNamespace returns the namespace of a database. It sends no command.
func NewNamespace(client *mongo.Client, database, location string, log *zap.Logger) *mongostore.Namespace {
	return mongostore.New(conn.New(client, database, location, log))
}
