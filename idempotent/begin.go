package idempotent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/hostname"
)

// Begin starts a run of the job of a key, for code that does not fit into a function; otherwise use
// [Do]. While another caller runs the job, Begin waits, at most as long as Options.Wait and ctx
// allow. If the wait ends, the error wraps a context error and an *InProgressError. With
// Options.NoWait, Begin returns the *InProgressError at once. If the job is over, the error is a
// *DoneError with its outcome.
//
// ctx bounds the wait. [Run.Context] is derived from it.
func (s *Store) Begin(ctx context.Context, key string) (*Run, error) {
	run, err := s.begin(ctx, key)
	if err != nil {
		s.report(ctx, key, 0, refusal(err), err)
	}
	return run, err
}

// report passes what became of a call to the tracer.
func (s *Store) report(ctx context.Context, key string, token int64, outcome string, err error) {
	if hook := s.locks.Tracer().OnceEnd; hook != nil {
		hook(ctx, fencelock.TraceOnce{Name: keyPrefix + key, Engine: s.locks.EngineName(), Outcome: outcome, Token: token, Err: err})
	}
}

// refusal returns the outcome of a call without a run in one word, for tracers.
func refusal(err error) string {
	_, over := errors.AsType[*DoneError](err)
	switch {
	case over:
		return "stored"
	case errors.Is(err, ErrInProgress):
		return "in_progress"
	case errors.Is(err, ErrMismatch):
		return "mismatch"
	}
	return "error"
}

func (s *Store) begin(ctx context.Context, key string) (*Run, error) {
	if err := s.check(key); err != nil {
		return nil, err
	}
	waiting := ctx // Options.Wait bounds the wait, not single requests
	if s.opts.Wait > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, s.opts.Wait)
		defer cancel()
	}
	a := &attempt{Store: s, key: key}
	var err error
	for a.last, err = s.look(ctx, key); ; {
		if err == nil {
			err = s.judge(key, a.last)
		}
		if err != nil {
			return nil, err
		}
		var first bool
		if a.flight, first = s.flights.join(key + "\x00" + s.fingerprint); first {
			var run *Run
			if run, err = a.run(ctx, waiting); run != nil {
				return run, nil
			}
			continue
		}
		if s.opts.NoWait {
			return nil, a.inProgress()
		}
		select {
		case <-a.flight.landed:
			a.last, err = a.flight.last, a.flight.err
		case <-waiting.Done():
			return nil, a.gaveUp(waiting)
		}
	}
}

// attempt is a caller's attempt to run a job.
type attempt struct {
	*Store
	key    string
	last   record  // the record as last read
	flight *flight // shared by all callers of the key in this process
}

// run returns a run, or nil if the record must be read again.
func (a *attempt) run(ctx, waiting context.Context) (run *Run, err error) {
	defer func() {
		if run != nil {
			return
		}
		shared := err
		if waiting.Err() != nil || errors.Is(err, ErrInProgress) {
			shared = nil // the end of this caller's wait does not concern the others
		}
		a.flight.land(a.last, shared)
	}()
	lock, err := a.acquire(ctx, waiting)
	if lock == nil {
		return nil, err
	}
	return a.claim(ctx, lock)
}

// acquire returns the lock of the key, or nil if the record must be read again. If the lock is
// held, acquire first waits for a shared lock and releases it at once: all waiters get it together
// when the run ends, and usually there is an outcome then. Only if there is none do they queue for
// a run.
func (a *attempt) acquire(ctx, waiting context.Context) (*fencelock.Lock, error) {
	lock, err := a.locks.TryAcquire(ctx, keyPrefix+a.key)
	held, ok := errors.AsType[*fencelock.HeldError](err)
	if !ok {
		return lock, err
	}
	a.flight.held.Store(held)
	if a.opts.NoWait {
		if a.last, err = a.look(ctx, a.key); err == nil && a.judge(a.key, a.last) == nil {
			err = a.inProgress()
		}
		return nil, err
	}
	reader, err := a.readers.Acquire(waiting, keyPrefix+a.key)
	if err != nil {
		return nil, a.waited(waiting, err)
	}
	_ = reader.Release() // if it fails, the lock expires by itself
	last, err := a.look(ctx, a.key)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, a.gaveUp(ctx)
	case err != nil:
		return nil, err
	}
	if a.last = last; a.judge(a.key, last) != nil {
		return nil, nil
	}
	if lock, err = a.locks.Acquire(waiting, keyPrefix+a.key); err != nil {
		return nil, a.waited(waiting, err)
	}
	return lock, nil
}

// waited returns the error of a wait that ended without a lock.
func (a *attempt) waited(waiting context.Context, err error) error {
	if held, ok := errors.AsType[*fencelock.HeldError](err); ok {
		a.flight.held.Store(held)
	} else if waiting.Err() == nil || errors.Is(err, fencelock.ErrUnavailable) {
		return err
	}
	return a.gaveUp(waiting)
}

// gaveUp returns the error of a wait that ctx ended.
func (a *attempt) gaveUp(ctx context.Context) error {
	return fmt.Errorf("%w: gave up waiting: %w", a.inProgress(), ctx.Err())
}

func (a *attempt) inProgress() error {
	held := a.flight.held.Load()
	if held == nil { // this process runs the job, or is about to
		held = &fencelock.HeldError{Name: keyPrefix + a.key, Identity: driver.Identity{Host: hostname.Get(), PID: os.Getpid()}}
	}
	return &InProgressError{Key: a.key, Held: held}
}

// claim turns a lock into a run: it writes the token of the run into the record. From then on only
// a run with a greater token can replace it. If there is no run, claim releases the lock: nothing
// was begun.
func (a *attempt) claim(ctx context.Context, lock *fencelock.Lock) (*Run, error) {
	run := &Run{store: a.Store, key: a.key, lock: lock, ctx: lock.ContextWith(ctx), flight: a.flight}
	claimed := false
	defer func() {
		if !claimed {
			_ = lock.Release() // if it fails, the lock expires by itself
		}
	}()
	for a.judge(a.key, a.last) == nil {
		if lock.Err() == nil && a.last.Token >= lock.Token() {
			return nil, run.overtaken()
		}
		err := run.begin(a.last.version)
		switch {
		case lock.Err() != nil:
			a.last = record{} // the next attempt reads the record again
			return nil, nil
		case err == nil && ctx.Err() == nil:
			claimed = true
			a.flight.held.Store(nil) // this process runs the job
			// If the lock is lost, the other callers need not wait until the function returns.
			run.unwatch = context.AfterFunc(lock.Context(), func() { a.flight.land(record{}, nil) })
			return run, nil
		case !errors.Is(err, driver.ErrConflict):
			return nil, cmp.Or(err, ctx.Err())
		}
		if a.last, err = a.look(ctx, a.key); err != nil { // another run has just ended
			return nil, err
		}
	}
	return nil, nil
}
