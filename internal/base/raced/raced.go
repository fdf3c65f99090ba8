// Package raced lets tests do less work under the race detector.
//
// The race detector slows code by a factor of four to ten, and more with larger data. It checks the
// order of accesses to memory, so one more seed, record or size shows it nothing new. scripts/test
// runs the packages that import this one twice: with the race detector, and in full without it.
//
// It is not for users and may change with any version.
package raced

import (
	"flag"
	"testing"
)

// Leave skips a test under the race detector. It is for tests that then take a minute, and whose
// code other tests run too.
func Leave(t testing.TB) {
	t.Helper()
	if On {
		t.Skip("with the race detector other tests go through the same code: scripts/test runs this one without it")
	}
}

// Seeds returns how many of its n seeds a test runs: one under the race detector, or else all.
func Seeds(n uint64) uint64 {
	if On {
		return min(n, 1)
	}
	return n
}

// DrawFewer makes rapid draw 20 cases, a fifth of its default, under the race detector. A test
// package calls it from init, so a -rapid.checks flag on the command line still wins.
func DrawFewer() {
	if !On {
		return
	}
	// rapid reads this flag when a test starts, after init.
	if err := flag.Set("rapid.checks", "20"); err != nil {
		panic(err)
	}
}

// FewDrawn reports whether a test draws few cases. Then all of them may be trivial, and a test must
// not demand otherwise.
func FewDrawn() bool { return On || testing.Short() }
