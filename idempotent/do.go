package idempotent

import (
	"context"
	"errors"
	"fmt"
)

// Do returns the result of the job of a key: what fn returns, if the job was not done
// yet, or else what is stored. It waits while another caller runs the job, no longer than
// Options.Wait and ctx allow; the error is then that of a context and ErrInProgress.
//
// The context given to fn is ctx with the token of the run ([TokenFrom]), which is also its
// fence for the guards of package fence, in the place of those of locks that ctx was made
// for. If the run is lost it ends with a cause that is fencelock.ErrLost. The lease is renewed until fn has
// returned, even after ctx has ended. A job must not ask for its own key: it would wait
// for itself.
//
// If ctx ends before fn begins, Do returns its error, and the key is free as soon as the
// records have been told, which Do does not wait for.
//
// Do returns what fn returned. If the run was taken over, the error is a
// *fencelock.LostError, joined with fn's: fn has run, and nothing is stored of it. If the
// outcome could not be stored for as long as a lease, and ten seconds at least, the error
// is fencelock.ErrUnavailable: another caller may run the job again.
func Do[T any](ctx context.Context, s *Store, key string, fn func(ctx context.Context) (T, error)) (T, error) {
	var value T
	if err := s.check(key); err != nil {
		return value, err
	}
	r, st, err := s.begin(ctx, key)
	if err != nil {
		return value, err
	}
	if r == nil {
		return recall[T](s, key, st)
	}
	defer r.abandon() // for a panic; otherwise it does nothing
	value, err = fn(r.ctx)
	if err != nil {
		if unstored := r.fail(err); unstored != nil {
			err = errors.Join(unstored, err)
		}
		return value, err
	}
	r.left = noResult // the job was done, and a codec may panic too
	data, err := s.cfg.Codec.Encode(value)
	if err != nil {
		return value, errors.Join(r.complete(nil, false), fmt.Errorf("%w: encoding the result of %q: %w", ErrNoResult, key, err))
	}
	return value, r.complete(data, true)
}

// recall makes the answer of a job that is over.
func recall[T any](s *Store, key string, st state) (value T, err error) {
	switch st.State {
	case failed:
		return value, &FailedError{Key: key, Text: st.Error}
	case noResult:
		return value, fmt.Errorf("%w: %q", ErrNoResult, key)
	}
	if err := s.cfg.Codec.Decode(st.result, &value); err != nil {
		return value, fmt.Errorf("idempotent: decoding the result of %q: %w", key, err)
	}
	return value, nil
}

// tokenKey is the context key of a run's token.
type tokenKey struct{}

// TokenFrom returns the token of the run that ctx belongs to; ok is false if there is
// none. It is greater than that of every earlier run of the key, as long as the key is
// remembered, and otherwise as the clock of the records goes.
func TokenFrom(ctx context.Context) (token int64, ok bool) {
	token, ok = ctx.Value(tokenKey{}).(int64)
	return token, ok
}
