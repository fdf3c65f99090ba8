package appclient_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/appclient"
)

// TestRecover: a panic beside the calls of the application is reported, and the App goes on.
func TestRecover(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	type fault struct {
		where string
		value any
	}
	faults := make(chan fault, 100)
	app, err := appclient.Open(t.Context(), appclient.Config{
		Controllers: []string{startController(t, d).server.URL}, Application: "packages", Memory: filepath.Join(t.TempDir(), "memory"),
		MongoAt: func(context.Context, appclient.Where) (*mongo.Client, error) { panic("planted") },
		Recover: func(where string, value any) error {
			faults <- fault{where, value}
			return errors.New("a fault")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := app.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	if got := <-faults; got.where != "the memory" || got.value != "planted" {
		t.Errorf("%+v", got)
	}
	d.set(hold("v1", 2, 1))
	if attempt := <-d.acks; attempt != 1 {
		t.Errorf("attempt %d is acknowledged", attempt)
	}
}
