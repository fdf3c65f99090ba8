package appclient_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/appclient"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

func of(deployment string, loc *pb.Location) *pb.Location {
	loc.Deployment = deployment
	return loc
}

// TestAnotherDeployment: an address that came to be that of another deployment's controller
// must not send the application to collections of the same names there.
func TestAnotherDeployment(t *testing.T) {
	t.Parallel()
	ours, theirs := newDeployment(), newDeployment()
	ours.set(of("ours", at("v1", 5)))
	theirs.set(of("theirs", at("v2", 900)))
	first := startController(t, ours)
	app := open(t, first, startController(t, theirs))
	asked := func(t *testing.T, c *deployment) int {
		t.Helper()
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.refused
	}
	first.end()
	eventually(t, "a question by name", func() bool { return asked(t, theirs) > 0 })
	var seen versions
	if err := app.Write(t.Context(), seen.run); err != nil || strings.Join(seen, " ") != "v1" {
		t.Errorf("%v: it is run at %v", err, seen)
	}
	if app.Revision() != 5 {
		t.Errorf("it took the location of revision %d", app.Revision())
	}
}

// TestRememberedDeployment: a start with the addresses of another deployment's controllers.
func TestRememberedDeployment(t *testing.T) {
	t.Parallel()
	theirs := newDeployment()
	theirs.set(of("theirs", at("v2", 900)))
	theirs.answersAnyName = true
	file := filepath.Join(t.TempDir(), "memory")
	if err := os.WriteFile(file, []byte(`{"format":1,"deployment":"ours","location":{"state":"OPEN","kinds":[{"kind":"packages"}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := appclient.Open(t.Context(), appclient.Config{
		Controllers: []string{startController(t, theirs).server.URL}, Application: "packages", Mongo: unconnected(t),
		Memory: file, StartTimeout: time.Hour, // that all are of another deployment ends it at once
	})
	if want := "this is a controller of theirs, not of ours: correct Controllers, or remove " + file; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestRecoveredRecord: etcd was lost, and revisions begin anew in the record that was recovered.
func TestRecoveredRecord(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	d.set(at("v1", 900))
	app := open(t, startController(t, d))
	err := app.Write(t.Context(), func(_ context.Context, place appclient.Place) error {
		if place.Version == "v1" {
			recovered := at("v2", 3)
			recovered.Epoch = 1
			d.set(recovered)
			return appclient.OfOne(place, mongo.CommandError{Code: 166})
		}
		return nil
	})
	if err != nil || app.Version() != "v2" {
		t.Errorf("%v, and it is at %s", err, app.Version())
	}
}

// TestLostAnswerOfTheRegistration: it was registered, and does not know.
func TestLostAnswerOfTheRegistration(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	c := startController(t, d)
	c.loseAnswers.Store(2)
	app := open(t, c)
	if n := d.clients(); n != 1 {
		t.Errorf("%d are registered, want the one application", n)
	}
	if err := app.Close(t.Context()); err != nil || d.clients() != 0 {
		t.Errorf("%v; %d stay registered", err, d.clients())
	}
}

// TestHoldIsAcknowledgedWhileAClusterIsReached: MongoAt may take its time.
func TestHoldIsAcknowledgedWhileAClusterIsReached(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	reaching, release := make(chan struct{}), make(chan struct{})
	app, err := appclient.Open(t.Context(), appclient.Config{
		Controllers: []string{startController(t, d).server.URL}, Application: "packages",
		MongoAt: func(context.Context, appclient.Where) (*mongo.Client, error) {
			close(reaching)
			<-release
			return nil, errors.New("not reached")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- app.Read(t.Context(), func(context.Context, appclient.Place) error { return nil }) }()
	<-reaching
	d.set(hold("v1", 2, 7))
	select {
	case attempt := <-d.acks:
		if attempt != 7 {
			t.Errorf("attempt %d is acknowledged", attempt)
		}
	case <-time.After(time.Minute):
		t.Error("it does not say that it holds")
	}
	close(release)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "reach the data of v1: not reached") {
		t.Error(err)
	}
	if err := app.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestReadOverARename: the rename ended the read, and the location that follows from it is not
// there yet.
func TestReadOverARename(t *testing.T) {
	t.Parallel()
	for _, code := range []int32{26, 43, 175} {
		d := newDeployment()
		app := open(t, startController(t, d))
		d.set(hold("v1", 2, 1))
		<-d.acks
		var seen versions
		err := app.Read(t.Context(), func(ctx context.Context, place appclient.Place) error {
			_ = seen.run(ctx, place)
			if place.Version == "v2" {
				return nil
			}
			if len(seen) == 3 {
				d.set(at("v2", 3))
			}
			return mongo.CommandError{Code: code}
		})
		if got := strings.Join(seen, " "); err != nil || got != "v1 v1 v1 v2" {
			t.Errorf("code %d: %v, run at %s", code, err, got)
		}
	}
}
