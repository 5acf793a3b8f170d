//go:build unix

package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The exit codes for a command that was not started. Shells have the first two.
const (
	NotFound      = 127 // the program or its interpreter does not exist
	NotExecutable = 126 // it exists but cannot be executed
	Failed        = 71  // fencelock lacks something to start it
)

// StartError says why a command was not started.
type StartError struct {
	Code int // one of the above
	Err  error
}

// Error returns what went wrong.
func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *StartError) Unwrap() error { return e.Err }

func notFound(name string) error {
	return &StartError{NotFound, fmt.Errorf("%s was not found", name)}
}

// notExecutable returns an error for name. It omits the operation and the path of err, since the
// text contains the name.
func notExecutable(name string, err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return &StartError{NotExecutable, fmt.Errorf("%s cannot be executed: %w", name, err)}
}

func failed(err error) error { return &StartError{Failed, err} }

// Lookup finds a command by its path or in PATH, as a shell does. Its error is a *StartError.
func Lookup(name string) (string, error) {
	path, err := exec.LookPath(name)
	if _, set := os.LookupEnv("PATH"); !set && errors.Is(err, exec.ErrNotFound) {
		path, err = lookupWithoutPath(name)
	}
	switch {
	case err == nil || errors.Is(err, exec.ErrDot): // a shell accepts a program in "." too
		return path, nil
	case errors.Is(err, fs.ErrNotExist):
		return "", notFound(name)
	case !errors.Is(err, exec.ErrNotFound):
		return "", notExecutable(name, err)
	}
	// LookPath skips files that it may not execute. A shell reports them.
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return "", notExecutable(filepath.Join(dir, name), fs.ErrPermission)
		}
	}
	return "", notFound(name)
}

// lookupWithoutPath searches the default path of the C library.
func lookupWithoutPath(name string) (path string, err error) {
	for _, dir := range []string{"/bin", "/usr/bin"} {
		if path, err = exec.LookPath(filepath.Join(dir, name)); err == nil {
			break
		}
	}
	return path, err
}

// Exec replaces this program with the command. It returns only on failure, with a *StartError.
func Exec(path string, args, env []string) error {
	err := unix.Exec(path, args, env)
	if isScript(path, err) {
		err = unix.Exec(shell, byShell(path, args), env)
	}
	return startError(args[0], err)
}

const shell = "/bin/sh"

// isScript reports whether the kernel has refused a file that a shell can run: a script without #!.
// As in shells, what has a zero byte near its beginning is a program for another machine.
func isScript(path string, err error) bool {
	if !errors.Is(err, unix.ENOEXEC) {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 128)
	n, err := io.ReadFull(f, head)
	return (err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) && bytes.IndexByte(head[:n], 0) < 0
}

// byShell returns the arguments with which the shell runs a script, as execvp(3) does.
func byShell(path string, args []string) []string {
	return append([]string{shell, path}, args[1:]...)
}

// startError converts an error of the kernel into a *StartError. If this process has reached a
// resource limit, the code is Failed, since the command itself may be correct.
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
