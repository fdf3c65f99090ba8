package simulation_test

import (
	"fmt"
	"iter"
	"os"
	"strconv"
	"testing"
	"testing/synctest"

	"dbcontroller.dev/internal/base/raced"
)

// The race detector makes a system take five times as long, and needs no seeds: it looks
// whether something orders two accesses, not in which order they came, so a run that goes
// through the code is as good as another one. What was lost or doubled depends on the order.
// So scripts/test runs these tests twice: with the race detector each of them for some of its
// seeds and cases, and without it for all. Tests that take long and run next to no statement of the
// product that no other one runs are left out with it (raced.Leave).

// raceEvery and raceCases have no divisor in common with the numbers of choices that tests make by
// their seed and case, so that the choices take turns.
const (
	raceEvery = 13 // of seeds
	raceCases = 11
)

// cases are all of a list, with their places in it; with the race detector one of each raceCases.
func cases[T any](of []T) iter.Seq2[int, T] {
	step := 1
	if raced.On {
		step = raceCases
	}
	return func(yield func(int, T) bool) {
		for i := 0; i < len(of) && yield(i, of[i]); i += step {
		}
	}
}

// soak returns the factor for numbers of seeds that make soak sets in DBCONTROLLER_SOAK, or 0 in any
// other run.
func soak() uint64 {
	times, err := strconv.ParseUint(os.Getenv("DBCONTROLLER_SOAK"), 10, 16)
	if err != nil {
		return 0
	}
	return times
}

// seeds returns the first n seeds, or soak() times as many in make soak. With the race detector it
// returns one of each raceEvery.
func seeds(n uint64) iter.Seq[uint64] {
	n *= max(1, soak())
	step := uint64(1)
	if raced.On {
		step = raceEvery
	}
	return func(yield func(uint64) bool) {
		for seed := uint64(0); seed < n && yield(seed); seed += step {
		}
	}
}

// turns returns one of the ways in which the nth case runs, and another one for the next case. Each
// case and each way thus run. make soak runs all combinations: they take twice as long and have shown
// nothing that neither the case nor the way shows elsewhere.
func turns[T any](nth int, all ...T) []T {
	if soak() > 0 {
		return all
	}
	nth %= len(all)
	return all[nth : nth+1]
}

// eachSeed runs a test with each of n seeds, in a world of its own whose time is not real.
func eachSeed(t *testing.T, n uint64, test func(t *testing.T, seed uint64)) {
	t.Helper()
	for seed := range seeds(n) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, seed) })
		})
	}
}
