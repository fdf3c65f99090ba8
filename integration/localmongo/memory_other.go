//go:build !linux

package localmongo

// memoryDir returns a folder in memory; none is known here.
func memoryDir() string { return "" }
