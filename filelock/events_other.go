//go:build !linux

package filelock

import (
	"errors"
	"os"
)

// A notifier does not exist here: hubs look by themselves.
type notifier struct{}

func newNotifier() (*notifier, error)     { return nil, errors.ErrUnsupported }
func (*notifier) add(string) (int, error) { return 0, errors.ErrUnsupported }
func (*notifier) remove(int)              {}
func (*notifier) close()                  {}
func (*notifier) read() ([]event, error)  { return nil, errors.ErrUnsupported }

// hang makes no bell here, since nothing tells a reader of a FIFO in time: waiters
// look by themselves.
func (*bells) hang(*folder, string) *os.File { return nil }

func unhang(*folder, string, *os.File) {}
func listen(*os.File, chan<- struct{}) {}
func ring(string)                      {}

// watchProcess does not exist here either.
func watchProcess(int, chan<- struct{}) *os.File { return nil }
