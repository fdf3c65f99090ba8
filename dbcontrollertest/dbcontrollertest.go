// Package dbcontrollertest is what tests of a service need that has no database: the data of a
// version in memory, over which dbcontroller.Service.Handler serves the APIs as a server does.
//
// It knows nothing of a switch: a service's handlers do not, either.
package dbcontrollertest

import (
	"testing"

	"dbcontroller.dev"
	"dbcontroller.dev/sample/sampletest"
)

// NewStore makes the data of a version with these kinds of records, of which there are none
// yet. What is written is there at once, and seen by watches.
func NewStore(t testing.TB, kinds ...string) dbcontroller.Store {
	t.Helper()
	return sampletest.New(t, kinds...)
}
