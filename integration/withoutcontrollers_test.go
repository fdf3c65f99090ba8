package integration_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/appclient"
)

// TestApplicationWithoutControllers opens an application while no controller runs: it goes on
// where its data was, follows when one comes, and does not begin by a memory of a place that
// the data has left.
func TestApplicationWithoutControllers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{})
	s.fill(ctx, newLedger("package"), 10)
	first := s.controller("first", breakPoint{}).ready(ctx)
	memory := filepath.Join(t.TempDir(), "where")
	open := func(controllers ...*child) (*appclient.App, error) {
		addresses := []string{"127.0.0.1:1"}
		for _, c := range controllers {
			api, _ := c.addresses()
			addresses = append(addresses, api)
		}
		patient := 200 * time.Millisecond
		if len(controllers) > 0 {
			patient = 10 * time.Second
		}
		return appclient.Open(ctx, appclient.Config{
			Controllers: addresses, Application: "packages", Mongo: s.db["v1"].Client(), Memory: memory, StartTimeout: patient,
		})
	}
	if _, err := open(); err == nil || !strings.Contains(err.Error(), "no controller can be reached") {
		t.Fatalf("nothing is remembered: %v", err)
	}
	app, err := open(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Close(ctx); err != nil {
		t.Error(err)
	}
	s.kill(first)

	wrote := func(app *appclient.App, key string) (version string) {
		t.Helper()
		if err := app.Write(ctx, func(ctx context.Context, at appclient.Place) error {
			version = at.Version
			c, err := at.Collection(packagesKind)
			if err == nil {
				_, err = c.InsertOne(ctx, packageDoc(at.Version, key, 0))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return version
	}
	if app, err = open(first); err != nil {
		t.Fatal(err)
	}
	if v := wrote(app, "alone"); v != "v1" {
		t.Errorf("without controllers it writes to %s", v)
	}
	if err := app.Close(ctx); err != nil { // it never met one: there is nothing to take back
		t.Error(err)
	}
	remembered, err := os.ReadFile(memory)
	if err != nil {
		t.Fatal(err)
	}

	second := s.controller("second", breakPoint{}).ready(ctx)
	if app, err = open(first, second); err != nil {
		t.Fatal(err)
	}
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	if v := wrote(app, "followed"); v != "v2" {
		t.Errorf("after the switch it writes to %s", v)
	}
	eventually(ctx, t, "it remembers the new place", func() error {
		now, err := os.ReadFile(memory)
		if err == nil && !strings.Contains(string(now), s.db["v2"].Name()) {
			err = errTooFew
		}
		return err
	})
	if err := app.Close(ctx); err != nil {
		t.Error(err)
	}
	s.kill(second)
	if app, err = open(second); err != nil {
		t.Fatal(err)
	}
	if v := wrote(app, "alone again"); v != "v2" {
		t.Errorf("without controllers it writes to %s", v)
	}
	if err := app.Close(ctx); err != nil {
		t.Error(err)
	}

	// As one that was switched off before the switch.
	if err := os.WriteFile(memory, remembered, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(second); err == nil || !strings.Contains(err.Error(), "the data is not where it was") {
		t.Errorf("by a memory of v1: %v", err)
	}
	if n, err := s.db["v2"].Collection(packagesKind).CountDocuments(ctx, bson.D{}); err != nil || n != 13 {
		t.Errorf("v2 has %d documents, %v", n, err)
	}
}
