//go:build !linux

package hosttest

// DataRoot returns "": on Linux it may be a directory in memory.
func DataRoot() string { return "" }
