//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Reason is why a command was not started.
type Reason int

// The reasons, which shells tell apart by their exit codes 126 and 127.
const (
	NotFound      Reason = iota // there is no such program, or not the one that interprets it
	NotExecutable               // it is there, and cannot be executed
	Failed                      // what we need to start it is missing
)

// StartError says why a command was not started.
type StartError struct {
	Reason Reason
	Err    error
}

// Error returns what went wrong.
func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *StartError) Unwrap() error { return e.Err }

func notFound(name string) error {
	return &StartError{NotFound, fmt.Errorf("%s was not found", name)}
}

// notExecutable leaves out of err what it does and to what, which is said already.
func notExecutable(name string, err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return &StartError{NotExecutable, fmt.Errorf("%s cannot be executed: %w", name, err)}
}

func failed(err error) error { return &StartError{Failed, err} }

// Lookup finds a command as a shell would, in PATH or by its path. Its error is a
// *StartError.
func Lookup(name string) (string, error) {
	path, err := exec.LookPath(name)
	if _, set := os.LookupEnv("PATH"); !set && errors.Is(err, exec.ErrNotFound) {
		path, err = lookupWithoutPath(name)
	}
	switch {
	case err == nil || errors.Is(err, exec.ErrDot): // a shell takes what is in "." as well
		return path, nil
	case errors.Is(err, fs.ErrNotExist):
		return "", notFound(name)
	case !errors.Is(err, exec.ErrNotFound):
		return "", notExecutable(name, err)
	}
	// LookPath passes over what it may not execute. A shell says that it was there.
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return "", notExecutable(filepath.Join(dir, name), fs.ErrPermission)
		}
	}
	return "", notFound(name)
}

// lookupWithoutPath looks where the C library does if there is no PATH.
func lookupWithoutPath(name string) (path string, err error) {
	for _, dir := range []string{"/bin", "/usr/bin"} {
		if path, err = exec.LookPath(filepath.Join(dir, name)); err == nil {
			break
		}
	}
	return path, err
}

// Exec becomes the command, in the place of this program. It returns only if that
// fails, with a *StartError.
func Exec(path string, args, env []string) error {
	return startError(args[0], unix.Exec(path, args, env))
}

// startError is what Lookup would have said, had it known. A limit of ours is no fault of
// the command's.
func startError(name string, err error) error {
	for _, ours := range []error{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE} {
		if errors.Is(err, ours) {
			return failed(fmt.Errorf("%s could not be started: %w", name, err))
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return notFound(name + ", or its interpreter,")
	}
	return notExecutable(name, err)
}
