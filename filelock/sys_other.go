//go:build !linux && !darwin

package filelock

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/fencelock/fencelock/driver"
)

// The operations of flock.
const (
	lockShared = iota
	lockExclusive
	unlock
)

var errBusy = errors.New("busy")

// supported returns driver.ErrUnsupported, so no function below is ever called.
func supported() error {
	return fmt.Errorf("%w: locks in files are available on Linux and macOS only, not on %s", driver.ErrUnsupported, runtime.GOOS)
}

func flock(*os.File, int) error             { return supported() }
func stamp(*os.File)                        {}
func unlinked(*os.File) bool                { return false }
func duplicate(*os.File) (*os.File, error)  { return nil, supported() }
func kill(int) error                        { return supported() }
func isFull(error) bool                     { return false }
func isReadOnly(error) bool                 { return false }
func isNotDir(error) bool                   { return false }
func statFS(*os.File) (string, bool, error) { return "", false, supported() }
func stopped(int) bool                      { return false }
func flockOwners(*os.File) ([]int, bool)    { return nil, false }
func commandOf(int) string                  { return "" }

func ownerOf(os.FileInfo) (uid, gid int, ok bool) { return 0, 0, false }
