//go:build unix && !linux

package localmongo

// awaitStopped trusts the signal: only Linux tells the states of threads.
func awaitStopped(int) error { return nil }
