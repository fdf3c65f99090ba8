//go:build race

package raced

// On reports whether this binary has the race detector.
const On = true
