package appclient_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/appclient"
)

// TestCallbackHasNoDeadline: only waits are bounded. A long operation without any switch goes on.
func TestCallbackHasNoDeadline(t *testing.T) {
	t.Parallel()
	app := openWith(t, unconnected(t), startController(t, newDeployment()))
	look := func(ctx context.Context, _ appclient.Place) error {
		if until, ok := ctx.Deadline(); ok {
			t.Errorf("the callback ends at %v", until)
		}
		return nil
	}
	for _, run := range []func(context.Context, func(context.Context, appclient.Place) error) error{app.Write, app.Transact, app.Read} {
		if err := run(t.Context(), look); err != nil {
			t.Error(err)
		}
	}
}

// TestCallbackOverItsPatience: a callback that took longer than any wait may, because it read a long
// cursor or its process slept, runs again where the data is.
func TestCallbackOverItsPatience(t *testing.T) {
	t.Parallel()
	const patience = 2 * time.Second
	for name, run := range map[string]func(*appclient.App) func(context.Context, func(context.Context, appclient.Place) error) error{
		"write": func(a *appclient.App) func(context.Context, func(context.Context, appclient.Place) error) error {
			return a.Write
		},
		"read": func(a *appclient.App) func(context.Context, func(context.Context, appclient.Place) error) error {
			return a.Read
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeployment()
			app, err := appclient.Open(t.Context(), appclient.Config{
				Controllers: []string{startController(t, d).server.URL}, Application: "packages", Mongo: unconnected(t), Patience: patience,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = app.Close(context.Background()) })
			version := ""
			err = run(app)(t.Context(), func(ctx context.Context, place appclient.Place) error {
				if version = place.Version; version == "v2" {
					return nil
				}
				over, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
				defer cancel()
				<-over.Done()
				d.set(at("v2", 2))
				return appclient.ErrMoved
			})
			if err != nil || version != "v2" {
				t.Errorf("%v, at %s", err, version)
			}
		})
	}
}

// TestBulkOfALostShard: a mongos reports a shard that it lost as the error of an operation, which the
// shard may have done.
func TestBulkOfALostShard(t *testing.T) {
	t.Parallel()
	app := open(t, startController(t, newDeployment()))
	for _, failure := range []mongo.BulkWriteException{
		{WriteErrors: []mongo.BulkWriteError{{WriteError: mongo.WriteError{Code: 6}}}},
		{WriteErrors: []mongo.BulkWriteError{{WriteError: mongo.WriteError{Code: 202}}}},
		{Labels: []string{"RetryableWriteError"}, WriteErrors: []mongo.BulkWriteError{{WriteError: mongo.WriteError{Code: 133}}}},
	} {
		err := app.Write(t.Context(), func(_ context.Context, place appclient.Place) error { return appclient.OfOne(place, failure) })
		if !errors.Is(err, appclient.ErrUnknownOutcome) {
			t.Errorf("%v: %v", failure, err)
		}
	}
}
