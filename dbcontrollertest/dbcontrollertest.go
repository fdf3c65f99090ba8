// Package dbcontrollertest supports tests of a service without a database.
//
// Start gives a whole server over data in memory, and Server.Switch makes another version active: a
// test of clients goes over an upgrade and back. NewStore gives the data of one version, for tests of
// single handlers, with dbcontroller.Service.Handler.
//
// Nothing here copies while clients write, and no process dies: the engine's own tests do that. A
// Switch reads all records at once, so tests should have thousands of them at most.
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
