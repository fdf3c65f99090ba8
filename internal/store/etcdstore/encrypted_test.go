package etcdstore_test

import (
	"testing"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/store/recordtest"
)

// TestConformanceEncrypted: what is in front of the backend asks of it what it does.
func TestConformanceEncrypted(t *testing.T) {
	raced.Leave(t)
	f := factory(t)
	recordtest.ExerciseTopics(t, func(t *testing.T) recordtest.Backend { return recordtest.Encrypted(t, f(t)) },
		"scan", "read", "apply", "load", "client", "swap", "once", "indexes") // the others pass documents on
}
