package integration_test

import (
	"os"
	"strings"
	"sync"
	"testing"

	"dbcontroller.dev/internal/base/raced"
)

// The processes of a system are what is shipped: without the race detector, with which they take
// five times as long. It checks whether something orders two accesses, so that each way through
// the code has to be gone once: by the tests that call raceProcesses. The simulation and the tests of
// the packages have it, too.

var racedTests sync.Map // by name

// raceProcesses gives the processes of a test the race detector, if the test itself has it.
func raceProcesses(t *testing.T) {
	t.Helper()
	racedTests.Store(t.Name(), true)
}

// player is the binary of the processes of a test.
func player(t *testing.T) string {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	if _, found := racedTests.Load(test); raced.On && !found {
		return built.player(t)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}
