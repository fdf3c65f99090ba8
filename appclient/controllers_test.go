package appclient_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/appclient"
	"dbcontroller.dev/appclient/client"
	"dbcontroller.dev/internal/access/accesstest"
)

// TestFollowsAtAnotherController when the one that it asks stops, or stands still.
func TestFollowsAtAnotherController(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	first := startController(t, d)
	app := open(t, first, startController(t, d))
	first.end()
	d.set(hold("v1", 2, 1))
	if attempt := <-d.acks; attempt != 1 {
		t.Errorf("attempt %d is acknowledged", attempt)
	}
	d.set(at("v2", 3))
	var seen versions
	if err := app.Write(t.Context(), seen.run); err != nil || strings.Join(seen, " ") != "v2" {
		t.Errorf("%v: it is run at %v", err, seen)
	}
}

// TestARefusedWriteAsksAllControllers at once, because one may stand still.
func TestARefusedWriteAsksAllControllers(t *testing.T) {
	t.Parallel()
	for range 5 {
		if asksAll(t) {
			return
		}
	}
	t.Error("they are not asked at once")
}

// asksAll reports whether a refused write asked a controller while one that stands still was asked as
// well. It need not ask where the location has come before, as on a busy machine.
func asksAll(t *testing.T) bool {
	t.Helper()
	d := newDeployment()
	silent, other := startController(t, d), startController(t, d)
	silent.stands.Store(true)
	var both atomic.Bool
	other.ready = func() bool {
		if silent.asking.Load() > 0 {
			both.Store(true)
		}
		return both.Load()
	}
	app, err := appclient.Open(t.Context(), appclient.Config{
		Controllers: []string{silent.server.URL, other.server.URL}, Application: "packages", Mongo: unconnected(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = app.Write(t.Context(), func(_ context.Context, place appclient.Place) error {
		if place.Version == "v1" {
			d.mu.Lock()
			d.location = at("v2", 2) // without news, so that the refusal is the first to ask
			d.mu.Unlock()
			return appclient.OfOne(place, mongo.CommandError{Code: 361})
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := app.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return both.Load()
}

func TestCloseDeregisters(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	first := startController(t, d)
	app := open(t, first, startController(t, d))
	if n := d.clients(); n != 1 {
		t.Errorf("%d clients are registered", n)
	}
	first.end()
	if err := app.Close(t.Context()); err != nil || d.clients() != 0 {
		t.Errorf("%v; %d clients are registered", err, d.clients())
	}
	var seen versions
	if err := app.Write(t.Context(), seen.run); !errors.Is(err, appclient.ErrNotWritten) || len(seen) > 0 {
		t.Errorf("a write after the end: %v", err)
	}
	if err := app.Read(t.Context(), seen.run); err == nil {
		t.Error("a read after the end")
	}
}

// TestNoControllerAtTheStart, and nothing that is remembered.
func TestNoControllerAtTheStart(t *testing.T) {
	t.Parallel()
	none := accesstest.ClosedPort(t)
	_, err := appclient.Open(t.Context(), appclient.Config{
		Controllers: []string{none}, Application: "packages", Mongo: unconnected(t), StartTimeout: 50 * time.Millisecond,
	})
	for _, want := range []string{"no controller can be reached", none, "nothing is remembered"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q: %v", want, err)
		}
	}
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	client := unconnected(t)
	for want, cfg := range map[string]appclient.Config{
		"no controllers are given":                  {Application: "a", Mongo: client},
		"the application has no name":               {Controllers: []string{"localhost:1"}, Mongo: client},
		"give either Mongo or MongoAt":              {Controllers: []string{"localhost:1"}, Application: "a"},
		"TTL is 1ms: give 1s to 5m0s":               {Controllers: []string{"localhost:1"}, Application: "a", Mongo: client, TTL: time.Millisecond},
		`"http://localhost:1/x" is no address`:      {Controllers: []string{"localhost:1/x"}, Application: "a", Mongo: client},
		"StartTimeout and Patience must not be neg": {Controllers: []string{"localhost:1"}, Application: "a", Mongo: client, Patience: -1},
	} {
		if _, err := appclient.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestReadableSecrets: the application's log warns of a token or a key that every user of the
// machine can read.
func TestReadableSecrets(t *testing.T) {
	t.Parallel()
	for mode, want := range map[os.FileMode]int{0o644: 2, 0o640: 0} {
		token, key := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "key")
		for _, file := range []string{token, key} {
			if err := os.WriteFile(file, []byte("t"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, mode); err != nil {
				t.Fatal(err)
			}
		}
		var log bytes.Buffer
		_, err := appclient.Open(t.Context(), appclient.Config{
			Controllers: []string{"https://localhost:1"}, Application: "a", Mongo: unconnected(t), Log: slog.New(slog.NewTextHandler(&log, nil)),
			Access: client.Config{TokenFile: token, Cert: token, Key: key},
		})
		if err == nil {
			t.Error("a key that is none was accepted")
		}
		if n := strings.Count(log.String(), "everybody on this machine can read a secret"); n != want {
			t.Errorf("mode %o: %d warnings, want %d: %s", mode, n, want, &log)
		}
	}
}
