package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Waited records the last answer of an engine to a waiting request and makes the error that the
// request returns. It ensures that a held name (ErrHeld) and an unreachable engine (ErrUnavailable)
// are never confused. The zero value is ready to use. It is not safe for concurrent use.
//
// An engine has one Waited for each waiting request. It calls Held for each answer that the name is
// held, and Unavailable for each failure to get an answer. It returns the result of Ended:
//
//	var last driver.Waited
//	for {
//		grant, held, err := ask(ctx)
//		switch {
//		case err == nil && held == nil:
//			return grant, nil
//		case err == nil:
//			last.Held(held)
//		case !temporary(err) || ctx.Err() != nil:
//			return driver.Grant{}, last.Ended(ctx, err)
//		default:
//			last.Unavailable(ctx, err)
//		}
//		select {
//		case <-notified:
//		case <-ctx.Done():
//			return driver.Grant{}, last.Ended(ctx, nil)
//		}
//	}
type Waited struct {
	held    *HeldError // the last answer; nil if the engine was unavailable after it
	trouble error      // why the engine was unavailable; nil if it has answered since
}

// Held records that the engine answered: another acquisition holds the name or is earlier in the
// queue.
func (w *Waited) Held(held *HeldError) { w.held, w.trouble = held, nil }

// Unavailable records that the engine was unreachable, did not answer, or grants nothing for now.
// An error that only says that ctx has ended is ignored, because it tells nothing about the engine.
// If err was made by another Waited, the answer or failure in it is recorded.
func (w *Waited) Unavailable(ctx context.Context, err error) {
	if other, ok := errors.AsType[*waitError](err); ok && !errors.Is(other.last, errNoAnswer) {
		err = other.last
	}
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		w.held, w.trouble = nil, err
	}
}

var errNoAnswer = fmt.Errorf("%w: no answer", ErrUnavailable)

// Last returns the last answer, or why the engine was unavailable. Both are nil before the first
// call of Held or Unavailable.
func (w *Waited) Last() (held *HeldError, trouble error) { return w.held, w.trouble }

// Ended returns the error of a request that ends without a grant. err is the error that ended it,
// or nil if only ctx ended it.
//
//   - If ctx has not ended, or err is ErrInvalid, ErrUnsupported or ErrConfig, Ended returns err.
//   - Otherwise it returns ctx.Err() joined with the *HeldError if the engine's last answer was
//     that the name is held, or else with an ErrUnavailable that wraps the reason.
func (w *Waited) Ended(ctx context.Context, err error) error {
	for _, final := range []error{ErrInvalid, ErrUnsupported, ErrConfig} {
		if errors.Is(err, final) {
			return err
		}
	}
	if ctx.Err() == nil {
		return err
	}
	if held, ok := errors.AsType[*HeldError](err); ok {
		w.Held(held)
	} else if err != nil {
		w.Unavailable(ctx, err)
	}
	switch {
	case w.held != nil:
		return &waitError{w.held, ctx.Err()}
	case w.trouble == nil && errors.Is(err, ErrUnavailable): // the engine's own message
		return OneLine(err)
	case w.trouble == nil:
		return &waitError{errNoAnswer, ctx.Err()}
	case errors.Is(w.trouble, ErrUnavailable):
		return &waitError{OneLine(w.trouble), ctx.Err()}
	default:
		return &waitError{fmt.Errorf("%w: %w", ErrUnavailable, OneLine(w.trouble)), ctx.Err()}
	}
}

// OneLine returns err, or an error that wraps err and has its text in one line.
func OneLine(err error) error {
	if err == nil || !strings.ContainsAny(err.Error(), "\n\r\t") {
		return err
	}
	return &oneLine{err}
}

type oneLine struct{ error }

func (e *oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e *oneLine) Unwrap() error { return e.error }
