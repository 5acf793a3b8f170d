//go:build unix && !linux

package supervise

// Ended returns a channel that is closed when a process has ended. The process need not be a child
// of this one.
func Ended(pid int) <-chan struct{} {
	ended := make(chan struct{})
	go pollEnd(pid, ended) // ends with the process, or with this one
	return ended
}

// KeepFiles makes files that this process inherited end with it: a program that it starts does not
// get them.
func KeepFiles() { keepFirstFiles() }
