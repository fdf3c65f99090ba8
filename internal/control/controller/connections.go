package controller

import (
	"context"
	"encoding/json"
	"fmt"

	"dbcontroller.dev/internal/control/controller/keys"
	"dbcontroller.dev/record"
)

// connections holds the configured databases, by version, in the forms that the parts of a
// controller use. App.connect fills it.
type connections struct {
	databases  map[string]Connection       // the other maps wrap them
	namespaces map[string]record.Namespace // each stream is checked against the record
	scratches  map[string]Space            // without Options.Wrap
	quiet      map[string]Space            // their use does not disturb other clients
}

// keyed returns the databases, by version, as far as their keys need them.
func (c *connections) keyed() map[string]keys.Database {
	out := map[string]keys.Database{}
	for version, db := range c.databases {
		out[version] = db
	}
	return out
}

// position returns the present change position of a version's database, encoded as in the record.
func (c *connections) position(ctx context.Context, version string) (string, error) {
	ns := c.namespaces[version]
	if ns == nil {
		return "", fmt.Errorf("version %s is not configured here", version)
	}
	at, err := ns.Position(ctx)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(at)
	return string(text), err
}

// openSoon opens a database. If that takes longer than soon, the error is unavailable.
func (c *connections) openSoon(ctx context.Context, version string) error {
	bounded, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	return c.databases[version].Open(bounded)
}

// Viewer is a Connection whose database has views.
type Viewer interface {
	Views(ctx context.Context) ([]record.View, error)
}

// views returns the views of applications in a version's database.
func (c *connections) views(ctx context.Context, version string) ([]record.View, error) {
	if v, ok := c.databases[version].(Viewer); ok {
		return v.Views(ctx)
	}
	return nil, nil
}
