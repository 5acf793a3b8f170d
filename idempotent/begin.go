package idempotent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/recordtext"
)

// Begin begins a run of the job of a key, for programs that cannot make a function of it:
// [Do] is for the others. It waits while another caller runs the job, no longer than
// Options.Wait and ctx allow; the error is then that of a context and an *InProgressError. With
// Options.NoWait that comes at once, without the context's. If the job is over, the error is a
// *DoneError with its outcome.
//
// ctx bounds the wait, and is what [Run.Context] is made of.
func (s *Store) Begin(ctx context.Context, key string) (*Run, error) {
	if err := s.check(key); err != nil {
		return nil, err
	}
	waiting := ctx // Options.Wait ends the wait, and no request
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
	last   record  // as it was seen last
	flight *flight // of those of this process who ask for the key
}

// run returns a run, or nil if there is news: the job may be over.
func (a *attempt) run(ctx, waiting context.Context) (run *Run, err error) {
	defer func() {
		if run != nil {
			return
		}
		shared := err
		if waiting.Err() != nil || errors.Is(err, ErrInProgress) {
			shared = nil // that this one waits no longer is nothing to the others
		}
		a.flight.land(a.last, shared)
	}()
	lock, err := a.acquire(ctx, waiting)
	if lock == nil {
		return nil, err
	}
	return a.claim(ctx, lock)
}

// acquire returns the lock of the key, or nil if there is news. Whoever finds somebody in
// the way waits for a shared lock first, and gives that back at once: all who wait get it together as
// soon as the run has ended, and mostly there is an outcome then. Only if there is none do they
// queue up for a run.
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
	_ = reader.Release() // if it fails, the lock ends by itself
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

// waited is the error of a wait for a lock that has ended without one.
func (a *attempt) waited(waiting context.Context, err error) error {
	if held, ok := errors.AsType[*fencelock.HeldError](err); ok {
		a.flight.held.Store(held)
	} else if waiting.Err() == nil || errors.Is(err, fencelock.ErrUnavailable) {
		return err
	}
	return a.gaveUp(waiting)
}

// gaveUp is the error of a wait that ctx has ended.
func (a *attempt) gaveUp(ctx context.Context) error {
	return fmt.Errorf("%w: gave up waiting: %w", a.inProgress(), ctx.Err())
}

func (a *attempt) inProgress() error {
	held := a.flight.held.Load()
	if held == nil { // this process runs the job, or is about to
		held = &fencelock.HeldError{Name: keyPrefix + a.key, Identity: driver.Identity{Host: recordtext.Host(), PID: os.Getpid()}}
	}
	return &InProgressError{Key: a.key, Held: held}
}

// claim makes a run of a lock: it writes into the record that the job runs under it. From then
// on no other run can store an outcome, unless it has a greater token. If there is news, or no run for
// another reason, the lock is given back: nothing was begun.
func (a *attempt) claim(ctx context.Context, lock *fencelock.Lock) (*Run, error) {
	run := &Run{store: a.Store, key: a.key, lock: lock, ctx: lock.ContextWith(ctx), flight: a.flight}
	claimed := false
	defer func() {
		if !claimed {
			_ = lock.Release() // if it fails, the lock ends by itself
		}
	}()
	for a.judge(a.key, a.last) == nil {
		if lock.Err() == nil && a.last.Token >= lock.Token() {
			return nil, run.overtaken()
		}
		err := run.begin(a.last.version)
		switch {
		case lock.Err() != nil:
			a.last = record{} // the next attempt finds what stands
			return nil, nil
		case err == nil && ctx.Err() == nil:
			claimed = true
			a.flight.held.Store(nil) // the run is this process's
			// However long the function of a lost run goes on, the others need not wait for it.
			run.unwatch = context.AfterFunc(lock.Context(), func() { a.flight.land(record{}, nil) })
			return run, nil
		case !errors.Is(err, driver.ErrConflict):
			return nil, cmp.Or(err, ctx.Err())
		}
		if a.last, err = a.look(ctx, a.key); err != nil { // somebody has just ended
			return nil, err
		}
	}
	return nil, nil
}
