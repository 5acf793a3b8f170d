//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// lookup finds the command as a shell would. Its errors carry the exit codes of
// a shell.
func lookup(name string) (string, error) {
	path, err := exec.LookPath(name)
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

// startError is what lookup would have said, had it known.
func startError(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return notFound(name + ", or its interpreter,")
	}
	return notExecutable(name, err)
}

func notFound(name string) error {
	return &exitError{exitNotFound, fmt.Errorf("%s was not found", name)}
}

func notExecutable(name string, err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return &exitError{exitNotExecutable, fmt.Errorf("%s cannot be executed: %w", name, err)}
}
