//go:build race

package raced

// On: this binary has the race detector.
const On = true
