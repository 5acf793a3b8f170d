//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/engineurl"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// app is what every verb works with. It is not changed once the command line was read.
type app struct {
	ctx            context.Context // ends with the process, or with a test
	stdin          io.Reader
	stdout, stderr io.Writer // data, and talk to people
	url            string    // of the engine; "" is the user's own directory
	json, verbose  bool
	helpFailed     error // a page of help could not be written
}

// say tells people something, in the command's voice.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.stderr, "fencelock: %s\n", termtext.Line(fmt.Sprintf(format, args...)))
}

// detail tells it with -v only.
func (a *app) detail(format string, args ...any) {
	if a.verbose {
		a.say(format, args...)
	}
}

// open returns the engine of the app's URL and what closes it. Its errors are
// one line, never show a password, and end the command with exit code 78, or 69
// if the engine is out of reach.
func (a *app) open(ctx context.Context) (driver.Engine, func() error, error) {
	engine, closeEngine, err := engineurl.Open(ctx, a.url)
	switch {
	case errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.Canceled):
		return nil, nil, err
	case err != nil:
		return nil, nil, &exitError{code: exitConfig, err: err}
	}
	return engine, closeEngine, nil
}

// with opens the engine for as long as fn runs. A signal that asks to end ends the context of fn:
// if fn fails by that, the error carries the exit code of the signal. When with has returned,
// signals do what they always do, so that nothing keeps a verb that prints from its end.
func (a *app) with(fn func(context.Context, driver.Engine) error) error {
	ctx, stop := endedBySignals(a.ctx)
	defer stop()
	return a.within(ctx, func(engine driver.Engine) error { return fn(ctx, engine) })
}

// within is with for callers that have a context of endedBySignals.
func (a *app) within(ctx context.Context, fn func(driver.Engine) error) error {
	engine, closeEngine, err := a.open(ctx)
	if err == nil {
		err = fn(engine)
		if closing := closeEngine(); err == nil {
			err = closing
		}
	}
	if ended := endedBy(ctx); ended != nil && errors.Is(err, context.Canceled) {
		return ended
	}
	return err
}
