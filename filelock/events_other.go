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

// createFIFO creates no FIFO on this system, because readers of a FIFO are not notified in time.
// Waiters poll.
func (*waker) createFIFO(*folder, string) *os.File { return nil }

func removeFIFO(*folder, string, *os.File) {}
func forward(*os.File, chan<- struct{})    {}
func (*folder) notify(string)              {}

// watchProcess is not available on this system.
func watchProcess(int, chan<- struct{}) *os.File { return nil }
