// Package dbcontrollertest runs a service in memory, for tests that need no database.
//
// Start starts a complete server over data in memory. Server.Switch makes another version active,
// so a test can take its clients through an upgrade and a rollback. NewStore returns the data of
// one version, for tests of single handlers with dbcontroller.Service.Handler.
//
// The package does not copy while clients write, and it simulates no crash. The engine's own tests
// do both. Switch reads all records at once, so use a few thousand at most.
//
// Begin to read at Start.
package dbcontrollertest

import (
	"testing"

	"dbcontroller.dev"
	"dbcontroller.dev/examples/sampletest"
)

// NewStore returns an empty store for a version with these kinds of records. Writes take effect at
// once, and watches see them.
func NewStore(t testing.TB, kinds ...string) dbcontroller.Store {
	t.Helper()
	return sampletest.New(t, kinds...)
}
