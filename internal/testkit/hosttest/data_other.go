//go:build !linux

package hosttest

// DataRoot returns "", which means the default directory for temporary files.
func DataRoot() string { return "" }
