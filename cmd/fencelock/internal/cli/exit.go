//go:build unix

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/engineurl"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/supervise"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// Exit codes beside the command's own. Most are those of sysexits.h, and the last three
// those of shells; nobody else has a code for a lost lock. They are a promise: scripts
// tell by them whether to go on.
const (
	exitNotHeld       = 1 // there was nothing to break
	exitUsage         = 64
	exitUnavailable   = 69
	exitBroken        = 70 // a verification failed
	exitStart         = 71 // something of ours did not start
	exitOutput        = 74 // what belongs on stdout could not be written there
	exitBusy          = 75
	exitLost          = 76
	exitConfig        = 78
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // and the number of the signal
)

// exitError ends the program with a code. With a nil err it says nothing.
type exitError struct {
	code        int
	err         error // what people are told; nil: nothing
	interrupted bool  // by SIGINT, of which we must die then
}

// Error is what people are told, or the code for those who log it.
func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns what the code was made of.
func (e *exitError) Unwrap() error { return e.err }

// exitWith ends the program with the command's own code, in silence.
func exitWith(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

// exitCode returns the exit code that err stands for. An error may be of several kinds;
// the first in the table counts, and what no retry mends comes before what one may.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code
	}
	if start, ok := errors.AsType[*supervise.StartError](err); ok {
		return startFailures[start.Reason]
	}
	for _, known := range []struct {
		err  error
		code int
	}{
		{driver.ErrLost, exitLost},
		{driver.ErrConfig, exitConfig},
		{driver.ErrHeld, exitBusy},
		{driver.ErrUnavailable, exitUnavailable},
		{driver.ErrUnsupported, exitConfig},
		{driver.ErrInvalid, exitUsage},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	return 1
}

// startFailures are the exit codes of a command that was not started, as shells have them.
var startFailures = map[supervise.Reason]int{
	supervise.NotFound: exitNotFound, supervise.NotExecutable: exitNotExecutable, supervise.Failed: exitStart,
}

// complain tells people about err: one line, and a second one that starts with
// "try:" where the error carries a hint. A silent exitError says nothing.
func complain(w io.Writer, err error) {
	if exit, ok := errors.AsType[*exitError](err); err == nil || ok && exit.err == nil {
		return
	}
	text, hint, _ := strings.Cut(err.Error(), "\ntry: ")
	fmt.Fprintf(w, "fencelock: %s\n", termtext.Line(text))
	if hint == "" {
		hint = hintFor(err)
	}
	if hint != "" {
		fmt.Fprintf(w, "try: %s\n", termtext.Line(hint))
	}
}

// hintFor says what to do about errors that are the same for every command, "" if nobody
// can know.
func hintFor(err error) string {
	if h, ok := errors.AsType[*engineurl.HintError](err); ok {
		return h.Hint
	}
	switch {
	case mayBeNew(err.Error()):
		return "wait; or, if the servers are new and no process can hold a lock on them, fencelock init"
	case errors.Is(err, driver.ErrInvalid) && strings.Contains(err.Error(), "the TTL"):
		return "a shorter --ttl, or a longer max-ttl in the URL of every process"
	case errors.Is(err, driver.ErrConfig) || errors.Is(err, driver.ErrUnavailable):
		return "fencelock doctor"
	case errors.Is(err, driver.ErrUnsupported):
		return "another engine with --url or FENCELOCK_URL: file:///path, redis:// or postgres://"
	}
	return ""
}

// mayBeNew reports whether a text says of a Redis that it grants nothing since it may have forgotten
// its locks. That of a server that has never had any says the same, and is ended by init.
func mayBeNew(text string) bool { return strings.Contains(text, "may have forgotten its locks") }
