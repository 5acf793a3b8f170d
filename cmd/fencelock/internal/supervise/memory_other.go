//go:build unix && !linux

package supervise

// GiveBackMemory does nothing where the kernel does not tell what is mapped.
func GiveBackMemory() {}
