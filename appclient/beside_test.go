package appclient_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/appclient"
)

// TestAControllerThatStandsStillHidesNothing: a hold and its end come from another controller, while
// the call for news at the first one still waits.
func TestAControllerThatStandsStillHidesNothing(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	first, second := startController(t, d), startController(t, d)
	app := open(t, first, second, startController(t, d))
	first.stands.Store(true)
	d.set(hold("v1", 2, 1))
	if attempt := <-d.acks; attempt != 1 {
		t.Errorf("attempt %d is acknowledged", attempt)
	}
	d.set(at("v2", 3))
	var seen versions
	if err := app.Write(t.Context(), seen.run); err != nil || strings.Join(seen, " ") != "v2" {
		t.Errorf("%v: it is run at %v", err, seen)
	}
	if n := first.gaveUp.Load(); n > 0 {
		t.Errorf("it gave up %d calls before it knew", n)
	}
	if n := d.clients(); n != 1 {
		t.Errorf("%d clients are registered", n)
	}
	first.stands.Store(false) // for Close
}

// standing is a function MongoAt that does not return until the test ends.
func standing(t *testing.T) (at func(context.Context, appclient.Where) (*mongo.Client, error), called chan struct{}, release func()) {
	called = make(chan struct{}, 10)
	ctx, release := context.WithCancel(t.Context())
	return func(context.Context, appclient.Where) (*mongo.Client, error) {
		called <- struct{}{}
		<-ctx.Done()
		return nil, errors.New("it was released")
	}, called, release
}

// TestHoldWhileTheMemoryIsWritten: neither the follower nor Close waits for a database that stands
// still.
func TestHoldWhileTheMemoryIsWritten(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	d.set(hold("v1", 1, 1)) // nothing to remember yet: Open returns at once
	mongoAt, called, release := standing(t)
	app, err := appclient.Open(t.Context(), appclient.Config{
		Controllers: []string{startController(t, d).server.URL}, Application: "packages", MongoAt: mongoAt,
		Memory: filepath.Join(t.TempDir(), "memory"),
	})
	if err != nil {
		t.Fatal(err)
	}
	<-d.acks
	d.set(at("v1", 2))
	<-called
	d.set(hold("v1", 3, 2))
	if attempt := <-d.acks; attempt != 2 {
		t.Errorf("attempt %d is acknowledged", attempt)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = app.Close(ctx)
	}()
	eventually(t, "the end of the registration", func() bool { return d.clients() == 0 })
	cancel()
	<-ended
	release()
	if len(called) > 0 {
		t.Error("MongoAt was called again meanwhile")
	}
}

// TestHoldWhileAWriteOpensAClient: a write that has not reached the database yet is not in flight.
func TestHoldWhileAWriteOpensAClient(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	mongoAt, called, release := standing(t)
	app, err := appclient.Open(t.Context(), appclient.Config{
		Controllers: []string{startController(t, d).server.URL}, Application: "packages", MongoAt: mongoAt,
	})
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error)
	go func() {
		wrote <- app.Write(t.Context(), func(context.Context, appclient.Place) error {
			t.Error("it is run")
			return nil
		})
	}()
	<-called
	d.set(hold("v1", 2, 1))
	if attempt := <-d.acks; attempt != 1 {
		t.Errorf("attempt %d is acknowledged", attempt)
	}
	// Another call waits for the same client only as long as its context allows.
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := app.Read(over, func(context.Context, appclient.Place) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a read: %v", err)
	}
	release()
	if err := <-wrote; !errors.Is(err, appclient.ErrNotWritten) || !strings.Contains(err.Error(), "it was released") {
		t.Errorf("a write: %v", err)
	}
	if err := app.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestShowsThatItLivesWhileWritesDoNotEnd: the end of the call that waits shows a controller that the process
// has died. Without such a call each switch waits for it, until the registration is over.
func TestShowsThatItLivesWhileWritesDoNotEnd(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	c := startController(t, d)
	app := open(t, c)
	writes, finish, written := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		written <- app.Write(t.Context(), func(context.Context, appclient.Place) error {
			close(writes)
			<-finish
			return nil
		})
	}()
	<-writes
	d.set(hold("v1", 2, 1))
	var waits time.Duration
	eventually(t, "a call that waits for news of the hold", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		waits = time.Duration(c.waited.GetTimeoutMs()) * time.Millisecond
		return c.waited.GetWaitRevision() == 2
	})
	if waits < time.Second {
		t.Errorf("the call waits for %v only", waits)
	}
	if n := len(d.acks); n > 0 {
		t.Error("a hold is acknowledged while a write is in flight")
	}
	close(finish)
	if attempt := <-d.acks; attempt != 1 {
		t.Errorf("attempt %d is acknowledged", attempt)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}
