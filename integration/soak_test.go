package integration_test

import "os"

// soaks reports whether make soak runs the tests. Some tests have more acts then: each is the
// behavior of another act at one more place, and all of them together are too long for each change.
func soaks() bool { return os.Getenv("DBCONTROLLER_SOAK") != "" }

// inTurn are the first two of what there is to try, and all of it in make soak.
func inTurn[T any](all ...T) []T {
	if soaks() {
		return all
	}
	return all[:2]
}
