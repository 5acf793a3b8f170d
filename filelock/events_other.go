//go:build !linux

package filelock

import (
	"errors"
	"os"
)

// notifier is not available on this system: watchers poll.
type notifier struct{}

func newNotifier() (*notifier, error)     { return nil, errors.ErrUnsupported }
func (*notifier) add(string) (int, error) { return 0, errors.ErrUnsupported }
func (*notifier) remove(int)              {}
func (*notifier) close()                  {}
func (*notifier) read() ([]event, error)  { return nil, errors.ErrUnsupported }

// hang creates no FIFO on this system, because readers of a FIFO are not notified in time. Waiters
// poll.
func (*bells) hang(*folder, string) *os.File { return nil }

func unhang(*folder, string, *os.File) {}
func listen(*os.File, chan<- struct{}) {}
func (*folder) ring(string)            {}

// watchProcess is not available on this system.
func watchProcess(int, chan<- struct{}) *os.File { return nil }
