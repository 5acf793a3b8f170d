//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lookup finds the command as a shell would. Its errors carry the exit codes of
// a shell.
func lookup(name string) (string, error) {
	path, err := exec.LookPath(name)
	if _, set := os.LookupEnv("PATH"); !set && errors.Is(err, exec.ErrNotFound) {
		path, err = lookupWithoutPath(name)
	}
	switch {
	case err == nil || errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, fs.ErrNotExist):
		return "", notFound(name)
	case !errors.Is(err, exec.ErrNotFound):
		return "", notExecutable(name, err)
	}
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

// startError is what lookup would have said, had it known.
func startError(name string, err error) error {
	for _, ours := range []error{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE} {
		if errors.Is(err, ours) {
			return &exitError{code: exitStart, err: fmt.Errorf("%s does not start: %w", name, err)}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return notFound(name + ", or its interpreter,")
	}
	return notExecutable(name, err)
}

func notFound(name string) error {
	return &exitError{code: exitNotFound, err: fmt.Errorf("%s was not found", name)}
}

func notExecutable(name string, err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return &exitError{code: exitNotExecutable, err: fmt.Errorf("%s cannot be executed: %w", name, err)}
}
