//go:build unix && !linux

package localmongo

// awaitStopped does nothing: only Linux shows the states of threads.
func awaitStopped(int) error { return nil }
