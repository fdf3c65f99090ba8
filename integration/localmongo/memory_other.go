//go:build !linux

package localmongo

// memoryDir returns "": no in-memory folder is known on this system.
func memoryDir() string { return "" }
