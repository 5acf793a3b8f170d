//go:build unix

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// App is what all verbs share. It does not change after the command line has been parsed.
type App struct {
	Context       context.Context // ends with the process or a test
	URL           string          // of the engine; "" is the default directory of the user
	Stderr        io.Writer       // messages for people
	stdout        io.Writer       // data
	stdin         io.Reader
	json, verbose bool
	log           *slog.Logger // what packages log, for people
	helpFailed    error        // set if help could not be written
}

// Say prints a message for people on stderr.
func (a *App) Say(format string, args ...any) {
	fmt.Fprintf(a.Stderr, "fencelock: %s\n", redactLine(fmt.Sprintf(format, args...)))
}

// redactLine returns a line of stderr. A password can be in anything that was on the command line, if a
// URL stands where no URL belongs.
func redactLine(text string) string { return termtext.Line(engineurl.Redact(text)) }

// detail prints a message if --verbose is set.
func (a *App) detail(format string, args ...any) {
	if a.verbose {
		a.Say(format, args...)
	}
}

// open returns the engine of the URL and a function that closes it. Its error is a single line
// without passwords. The exit code is 69 if the server is unreachable, and 78 otherwise.
func (a *App) open(ctx context.Context) (driver.Engine, func() error, error) {
	engine, closeEngine, err := engineurl.Open(ctx, a.URL, a.log)
	switch {
	case errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.Canceled):
		return nil, nil, err
	case err != nil:
		return nil, nil, Exit(ExitConfig, err)
	}
	return engine, closeEngine, nil
}

// with opens the engine, calls fn and closes the engine. A signal that asks to end cancels the
// context of fn. If fn fails because of that, the error carries the exit code of the signal. After
// with has returned, signals have their default effect, so a verb that still prints can be ended.
func (a *App) with(fn func(context.Context, driver.Engine) error) error {
	ctx, stop := EndedBySignals(a.Context)
	defer stop()
	return a.within(ctx, func(engine driver.Engine) error { return fn(ctx, engine) })
}

// within does the work of with, for a context that EndedBySignals has returned.
func (a *App) within(ctx context.Context, fn func(driver.Engine) error) error {
	engine, closeEngine, err := a.open(ctx)
	if err == nil {
		err = cmp.Or(fn(engine), closeEngine())
	}
	if ended := endedBy(ctx); ended != nil && errors.Is(err, context.Canceled) {
		return ended
	}
	return err
}

// ask is with for a question to the engine.
func ask[T any](a *App, question func(context.Context, driver.Engine) (T, error)) (answer T, err error) {
	err = a.with(func(ctx context.Context, engine driver.Engine) error {
		answer, err = question(ctx, engine)
		return err
	})
	return answer, err
}

// untilEnded is with for a verb that runs until it is ended: INT and TERM, and the end of parent,
// count as success, also if they come before the server has answered.
func (a *App) untilEnded(parent context.Context, fn func(context.Context, driver.Engine) error) error {
	ctx, stop := EndedBySignals(parent)
	defer stop()
	err := a.within(ctx, func(engine driver.Engine) error { return fn(ctx, engine) })
	if ctx.Err() == nil {
		return err
	}
	switch ended := endedBy(ctx); exitCode(ended) {
	case 0, exitSignal + int(unix.SIGINT), exitSignal + int(unix.SIGTERM):
		return nil
	default:
		return ended
	}
}
