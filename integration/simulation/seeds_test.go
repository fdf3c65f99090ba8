package simulation_test

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// eachSeed runs a test with each of n seeds, in a world of its own whose time is not real.
func eachSeed(t *testing.T, n uint64, test func(t *testing.T, seed uint64)) {
	t.Helper()
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, seed) })
		})
	}
}
