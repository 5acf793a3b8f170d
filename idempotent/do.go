package idempotent

import (
	"context"
	"errors"
	"fmt"
)

// Do returns the result of the job of a key. If the job is not done yet, Do runs fn and stores its
// result; otherwise it returns the stored result. While another caller runs the job, Do waits like
// [Store.Begin].
//
// While fn runs, this caller holds the lock idempotent/KEY. It is renewed until fn returns, even if
// ctx ends earlier. The context given to fn is derived from ctx and has the token of the run
// (fencelock.TokenFrom). Guards of package fence use this token, not those of locks that ctx
// belongs to. If the lock is lost, the context ends with a cause that is fencelock.ErrLost. fn must
// not call Do with its own key: it would wait for itself.
//
// If ctx ends before fn starts, Do returns an error and the key stays free. Otherwise Do returns
// what fn returned. If a later run has started in the meantime, the error is a *fencelock.LostError
// joined with that of fn: fn has run, but its result is not stored. See [Run.Complete] and
// [Run.Fail] for other errors.
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
	defer func() { _ = run.end(record{State: noResult}) }() // the job is done, but the codec may panic
	data, err := s.cfg.Codec.Encode(value)
	if err != nil {
		return value, errors.Join(run.end(record{State: noResult}), fmt.Errorf("%w: encoding the result of %q: %w", ErrNoResult, key, err))
	}
	return value, run.Complete(data)
}

// recall returns the stored outcome of a job.
func recall[T any](s *Store, over *DoneError) (value T, err error) {
	if over.Err != nil {
		return value, over.Err
	}
	if err := s.cfg.Codec.Decode(over.Result, &value); err != nil {
		return value, fmt.Errorf("idempotent: decoding the result of %q: %w", over.Key, err)
	}
	return value, nil
}
