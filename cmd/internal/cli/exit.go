//go:build unix

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/cmd/internal/supervise"
	"github.com/fencelock/fencelock/driver"
)

// Exit codes besides that of the command and those of supervise.StartError. Most are those of
// sysexits.h. Scripts rely on them, so they do not change.
const (
	exitNotHeld     = 1 // nobody holds the name
	ExitUsage       = 64
	exitCut         = 65 // a stored output is not the whole output
	ExitUnavailable = 69
	ExitBroken      = 70 // doctor, or chaos in fencelock-all, found something broken, or demo failed
	exitStart       = supervise.Failed
	ExitOutput      = 74 // stdout could not be written
	exitBusy        = 75
	exitLost        = 76
	ExitConfig      = 78
	exitCapped      = 124 // as timeout(1) has it
	exitSignal      = 128 // plus the number of the signal
)

// exitError ends the program with an exit code. If err is nil, nothing is printed.
type exitError struct {
	code        int
	err         error // printed; nil prints nothing
	interrupted bool  // end by SIGINT instead of by code
}

// Exit returns an error with an exit code, or nil for 0 and no error. Without err, nothing is printed.
//
//go:noinline
func Exit(code int, err error) error {
	if code == 0 && err == nil {
		return nil
	}
	return &exitError{code: code, err: err}
}

// Error returns the message for people, or the code.
func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns err.
func (e *exitError) Unwrap() error { return e.err }

// endedBySignal returns an error that ends the program as a signal does and prints nothing.
func endedBySignal(s unix.Signal) error {
	return &exitError{code: exitSignal + int(s), interrupted: s == unix.SIGINT}
}

// exitCode returns the exit code of err. If err is of several kinds, the first one in the table
// decides: an error that no retry can fix comes before one that a retry can.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code
	}
	if start, ok := errors.AsType[*supervise.StartError](err); ok {
		return start.Code
	}
	for _, known := range []struct {
		err  error
		code int
	}{
		{driver.ErrLost, exitLost},
		{unix.EMFILE, exitStart}, // limits of this process, whatever it wanted
		{unix.EFBIG, exitStart},
		{driver.ErrConfig, ExitConfig},
		{driver.ErrHeld, exitBusy},
		{driver.ErrUnavailable, ExitUnavailable},
		{driver.ErrUnsupported, ExitConfig},
		{driver.ErrInvalid, ExitUsage},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	return 1
}

// printError prints err on one line, and on a second line that starts with "try:" what to do about
// it, if that is known. It prints nothing for an exitError without err.
func printError(w io.Writer, err error) {
	if exit, ok := errors.AsType[*exitError](err); err == nil || ok && exit.err == nil {
		return
	}
	text, hint, _ := strings.Cut(err.Error(), "\ntry: ")
	fmt.Fprintf(w, "fencelock: %s\n", redactLine(text))
	if hint == "" {
		hint = hintFor(err)
	}
	if hint != "" {
		fmt.Fprintf(w, "try: %s\n", redactLine(hint))
	}
}

// hintFor returns what to do about an error of any verb, or "".
func hintFor(err error) string {
	if h, ok := errors.AsType[*engineurl.HintError](err); ok {
		return h.Hint
	}
	switch {
	case errors.Is(err, unix.EMFILE):
		return "a higher limit with ulimit -n"
	case errors.Is(err, unix.EFBIG):
		return "a higher limit with ulimit -f"
	case mayBeNew(err.Error()):
		return "wait; or, if the servers are new and no process can hold a lock on them, fencelock init"
	case errors.Is(err, driver.ErrInvalid) && strings.Contains(err.Error(), "the TTL"):
		return "a shorter --ttl, or a longer max-ttl in the URL of every process"
	case errors.Is(err, driver.ErrConfig) || errors.Is(err, driver.ErrUnavailable):
		return "fencelock doctor"
	case errors.Is(err, driver.ErrUnsupported):
		return "another engine with --url or FENCELOCK_URL, such as file:///path, redis:// or postgres://"
	}
	return ""
}

// mayBeNew reports whether a message says that a Redis server may have lost its data and grants
// none. A new server says the same, and init ends that.
func mayBeNew(text string) bool { return strings.Contains(text, "may have lost its data") }
