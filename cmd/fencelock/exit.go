//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/fencelock/fencelock/driver"
)

// Exit codes beside the command's own. 64, 69 and 78 are those of sysexits.h, 75
// too; nobody else has a code for a lost lock.
const (
	exitUnavailable   = 69
	exitStart         = 71 // something of ours did not start
	exitBusy          = 75
	exitLost          = 76
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // and the number of the signal
)

// exitError ends the program with a code. With a nil err it says nothing.
type exitError struct {
	code        int
	err         error
	interrupted bool // by SIGINT, of which we must die then
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitCode returns the exit code that err stands for.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code
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

// complain tells people about err: one line, and a second one that starts with
// "try:" where the error carries a hint. A silent exitError says nothing.
func complain(w io.Writer, err error) {
	if exit, ok := errors.AsType[*exitError](err); err == nil || ok && exit.err == nil {
		return
	}
	text, hint, _ := strings.Cut(err.Error(), "\ntry: ")
	fmt.Fprintf(w, "fencelock: %s\n", oneLine(text))
	if hint == "" {
		hint = hintFor(err)
	}
	if hint != "" {
		fmt.Fprintf(w, "try: %s\n", oneLine(hint))
	}
}

// oneLine keeps what engines and other holders say from breaking the one-line
// rule, or from speaking to the terminal.
func oneLine(text string) string {
	printable := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	return strings.Join(strings.Fields(printable), " ")
}

// hintedError knows what to do about itself.
type hintedError struct {
	error
	hint string
}

func (e *hintedError) Unwrap() error { return e.error }

// hintFor says what to do about errors that are the same for every command.
func hintFor(err error) string {
	if h, ok := errors.AsType[*hintedError](err); ok {
		return h.hint
	}
	switch {
	case errors.Is(err, driver.ErrConfig) || errors.Is(err, driver.ErrUnavailable):
		return "fencelock doctor"
	case errors.Is(err, driver.ErrUnsupported):
		return "an engine that can, with --url or FENCELOCK_URL"
	}
	return ""
}
