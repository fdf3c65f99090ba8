// Package raced is for tests that need not do all of their work with the race detector.
//
// The race detector makes code take four to ten times as long, the more the larger its data are. It
// checks whether something orders two accesses, so the next seed, record or size finds it nothing
// new. scripts/test runs the packages that use this one twice: with the race detector, and
// without it, where they leave nothing out.
//
// It is not for users and may change with any version.
package raced

import (
	"flag"
	"testing"
)

// Leave skips a test that takes a minute with the race detector, and whose code others go through.
func Leave(t testing.TB) {
	t.Helper()
	if On {
		t.Skip("with the race detector other tests go through the same code: scripts/test runs this one without it")
	}
}

// DrawFewer has rapid draw a fifth of its cases where the race detector is on. It is for an init
// of tests, before the command line is read, which says otherwise where it says anything.
func DrawFewer() {
	if !On {
		return
	}
	if err := flag.Set("rapid.checks", "20"); err != nil {
		panic(err)
	}
}

// FewDrawn: so few cases are drawn that all of them may be of those with which there is nothing to
// do. Tests look at that where all are drawn.
func FewDrawn() bool { return On || testing.Short() }
