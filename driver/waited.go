package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Waited is what one request has heard of its engine while it waited, and makes
// the error it ends with: busy and broken are never mixed up. The zero value has
// heard nothing. The goroutine of the request uses it alone.
//
// An engine has one for each request that waits. It calls Held with every answer
// that somebody is in the way, Unavailable with every failure to get an answer,
// and returns what Ended makes of the last error:
//
//	var heard driver.Waited
//	for {
//		grant, held, err := ask(ctx)
//		switch {
//		case err == nil && held == nil:
//			return grant, nil
//		case err == nil:
//			heard.Held(held)
//		case !passing(err) || ctx.Err() != nil:
//			return driver.Grant{}, heard.Ended(ctx, err)
//		default:
//			heard.Unavailable(ctx, err)
//		}
//		select {
//		case <-news:
//		case <-ctx.Done():
//			return driver.Grant{}, heard.Ended(ctx, nil)
//		}
//	}
type Waited struct {
	held    *HeldError // the last answer; nil if the engine was unavailable since
	trouble error      // why the engine was unavailable, the last time; nil since it answered
}

// Held notes that the engine answered: somebody holds the name, or is before the
// request in the queue.
func (w *Waited) Held(held *HeldError) { w.held, w.trouble = held, nil }

// Unavailable notes that the engine could not be asked, did not answer, or grants
// nothing just now. That ctx has ended meanwhile is no news of the engine, and is
// not noted. An error that another Waited has made counts as what that one heard.
func (w *Waited) Unavailable(ctx context.Context, err error) {
	if other, ok := errors.AsType[*waitError](err); ok && !errors.Is(other.last, errNoAnswer) {
		err = other.last
	}
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		w.held, w.trouble = nil, err
	}
}

var errNoAnswer = fmt.Errorf("%w: no answer", ErrUnavailable)

// Last returns what the engine said last: who is in the way, or why it was
// unavailable. Both are nil if nothing was heard of it.
func (w *Waited) Last() (held *HeldError, trouble error) { return w.held, w.trouble }

// Ended returns the error of a request that ends without a grant. err is what
// ended it, nil if that was ctx alone.
//
//   - As long as ctx has not ended, and for ErrInvalid, ErrUnsupported and
//     ErrConfig, that is err.
//   - If ctx has ended, it is ctx.Err() joined with the *HeldError if the engine
//     has said that the name is held and was not found unavailable since, and
//     otherwise with an ErrUnavailable that wraps why.
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
		return WaitError(w.held, ctx.Err())
	case w.trouble == nil && errors.Is(err, ErrUnavailable): // the engine's own words for it
		return OneLine(err)
	case w.trouble == nil:
		return &waitError{errNoAnswer, ctx.Err()}
	case errors.Is(w.trouble, ErrUnavailable):
		return &waitError{OneLine(w.trouble), ctx.Err()}
	default:
		return &waitError{fmt.Errorf("%w: %w", ErrUnavailable, OneLine(w.trouble)), ctx.Err()}
	}
}

// OneLine returns err, or an error that wraps err and says the same in one line.
func OneLine(err error) error {
	if err == nil || !strings.ContainsAny(err.Error(), "\n\r\t") {
		return err
	}
	return &oneLine{err}
}

type oneLine struct{ error }

func (e *oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e *oneLine) Unwrap() error { return e.error }
