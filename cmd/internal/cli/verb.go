//go:build unix

package cli

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What a verb of another package uses. A program that has such verbs passes them to Main.

// Verb returns a command. It may keep the App until the command runs.
type Verb func(*App) *cobra.Command

// App is what all verbs share. It does not change after the command line has been parsed.
type App = app

// Context ends with the process or a test. Stderr is for people.
func (a *app) Context() context.Context { return a.ctx }
func (a *app) Stderr() io.Writer        { return a.stderr }

// URL returns the URL of the engine; "" is the default directory of the user.
func (a *app) URL() string { return a.url }

// Say prints a message for people on stderr.
func (a *app) Say(format string, args ...any) { a.say(format, args...) }

// Print prints v as JSON, or text without --json.
func (a *app) Print(v any, text string) error { return a.print(v, text) }

// The groups of verbs and the annotations of a command: tables that its help shows.
const (
	SeeLocks     = seeLocks
	ExitCodes    = exitCodes
	SabotageRows = sabotageRows
)

// The exit codes.
const (
	ExitBroken      = exitBroken
	ExitConfig      = exitConfig
	ExitOutput      = exitOutput
	ExitUnavailable = exitUnavailable
	ExitUsage       = exitUsage
)

// Row is a row of a table in help: a word and its meaning.
type Row = explained

// Table returns the annotation for rows.
func Table(rows ...Row) string { return table(rows) }

// Exit returns an error with an exit code. err may be nil: nothing is printed then.
func Exit(code int, err error) error { return &exitError{code: code, err: err} }

// Misuse returns the error of a wrong command line. try is what to write instead; "" is the help.
func Misuse(err error, try string) error { return &misuse{err, try} }

// Arguments stores the arguments of a verb; see the words of its Use.
func Arguments(into ...*string) cobra.PositionalArgs { return arguments(into...) }

// Checked returns a PreRunE that calls check, for what the parser cannot find.
func Checked(check func() error) func(*cobra.Command, []string) error { return checked(check) }

// Offer sets what the shell completes after a flag.
func Offer(cmd *cobra.Command, flag string, values ...string) { offer(cmd, flag, 0, values...) }

// Number adds a flag for a number that is at least least.
func Number(f *pflag.FlagSet, into *int, name string, least int, usage string) {
	f.Var(number{into, least}, name, usage)
}

// Duration adds a flag for a duration.
func Duration(f *pflag.FlagSet, into *time.Duration, name string, value time.Duration, usage string) {
	durationVar(f, into, name, "", value, usage)
}

// EndedBySignals returns a context that a signal that asks to end cancels. The caller must call the
// function, which restores the default effect of signals.
func EndedBySignals(parent context.Context) (context.Context, func()) { return endedBySignals(parent) }

// Ended returns the error of the signal that has cancelled a context of EndedBySignals, or nil. It
// prints nothing.
func Ended(ctx context.Context) error {
	if e, ok := endedBy(ctx).(*exitError); ok { //nolint:errorlint // endedBy wraps nothing
		return &exitError{code: e.code, interrupted: e.interrupted}
	}
	return nil
}

// OutliveReaders makes writes to a pipe that nobody reads fail instead of ending the process.
func OutliveReaders() { outliveReaders() }

// Columns returns the width of a terminal whose lines can be updated, and 0 for another writer.
func Columns(w io.Writer) int {
	if dumb() {
		return 0
	}
	return max(0, columnsOf(w))
}

// Cut returns as much of text as fits into a line of a terminal.
func Cut(text string, columns int) string { return cut(text, columns) }
