package idempotent

import (
	"context"
	"errors"
	"fmt"
)

// Do returns the result of the job of a key: what fn returns, if the job was not done
// yet, or else what is stored. It waits while another caller runs the job, as [Store.Begin] does.
//
// While fn runs this caller holds the lock idempotent/KEY, which is renewed until fn has
// returned, even after ctx has ended. The context given to fn is ctx with the token of the run
// (fencelock.TokenFrom), which is also its fence for the guards of package fence, in the place of
// those of locks that ctx was made for. If the lock is lost it ends with a cause that
// is fencelock.ErrLost. A job must not ask for its own key: it would wait for itself.
//
// If ctx ends before fn begins, Do returns its error, and the key is free.
//
// Do returns what fn returned. If a later run has begun meanwhile, the error is a
// *fencelock.LostError, joined with fn's: fn has run, and nothing is stored of it; see
// [Run.Complete] and [Run.Fail].
func Do[T any](ctx context.Context, s *Store, key string, fn func(ctx context.Context) (T, error)) (value T, err error) {
	run, err := s.Begin(ctx, key)
	if over, ok := errors.AsType[*DoneError](err); ok {
		return recall[T](s, over)
	}
	if err != nil {
		return value, err
	}
	defer run.Abandon() // for a panic; otherwise it does nothing
	value, err = fn(run.Context())
	if err != nil {
		if unstored := run.Fail(err); unstored != nil {
			err = errors.Join(unstored, err)
		}
		return value, err
	}
	defer run.end(record{State: noResult}) // the job was done, and a codec may panic too
	data, err := s.cfg.Codec.Encode(value)
	if err != nil {
		return value, errors.Join(run.end(record{State: noResult}), fmt.Errorf("%w: encoding the result of %q: %w", ErrNoResult, key, err))
	}
	return value, run.Complete(data)
}

// recall makes the answer of a job that is over.
func recall[T any](s *Store, over *DoneError) (value T, err error) {
	if over.Err != nil {
		return value, over.Err
	}
	if err := s.cfg.Codec.Decode(over.Result, &value); err != nil {
		return value, fmt.Errorf("idempotent: decoding the result of %q: %w", over.Key, err)
	}
	return value, nil
}
