// Package dbcontrollertest supports tests of a service without a database. It keeps the data of one
// version in memory, and dbcontroller.Service.Handler serves the APIs over it as a server does.
//
// It does not simulate switches, because handlers never see one. Begin to read at NewStore.
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
