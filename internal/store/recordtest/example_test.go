package recordtest_test

import (
	"testing"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/record"
)

// It is the test of a backend, so it is compiled and not run.
func Example() {
	var t *testing.T
	open := func(*testing.T) record.Namespace { return memstore.New() }
	recordtest.Exercise(t, func(t *testing.T) recordtest.Backend {
		return recordtest.Backend{Namespace: open(t)}
	})
}
