package semaphore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/fencelock/fencelock"
)

// Semaphore is a name that several holders share, up to a size. It is safe for concurrent use, need
// not be closed, and runs no goroutine of its own.
type Semaphore struct {
	locks *fencelock.Locker
	name  string
	size  int
}

// New returns a semaphore of the given size, 1 to 1,000,000,000, shared by all users of the name on
// the same engine. It does no I/O. Permits use the TTL, the grace, the wait limit, the note and
// OnWait of locks. Shared, Limit and Weight are set by the semaphore. A Locker with Options.MinHold
// is fencelock.ErrInvalid.
func New(locks *fencelock.Locker, name string, size int) *Semaphore {
	return &Semaphore{locks: locks, name: name, size: size}
}

// Acquire waits until it holds a permit of that weight, at most as long as ctx and the wait limit
// of the Locker allow. It returns the permit as a lock, which the caller must Release. ctx bounds
// only the wait. Weight 0 means 1.
//
// A weight above the size given to New is fencelock.ErrInvalid, even if Resize has made the
// semaphore larger. If the wait ends without a permit, the error wraps the context's error, and
// also fencelock.ErrHeld, or fencelock.ErrUnavailable if the engine was unreachable; see
// [fencelock.Locker.Acquire].
func (s *Semaphore) Acquire(ctx context.Context, weight int) (*fencelock.Lock, error) {
	return s.permit(weight, func(l *fencelock.Locker) (*fencelock.Lock, error) { return l.Acquire(ctx, s.name) })
}

// TryAcquire is [Semaphore.Acquire] without waiting. If the permit does not fit, or others are
// waiting, it returns a *fencelock.HeldError at once, which describes the oldest holder.
func (s *Semaphore) TryAcquire(ctx context.Context, weight int) (*fencelock.Lock, error) {
	return s.permit(weight, func(l *fencelock.Locker) (*fencelock.Lock, error) { return l.TryAcquire(ctx, s.name) })
}

// Do runs fn while it holds a permit of that weight. It waits for the permit like
// [Semaphore.Acquire]. The context given to fn is derived from ctx and has the fencing token of the
// permit. If the permit is lost, it ends with a cause that is fencelock.ErrLost. Do returns the
// error of fn, joined with the loss if there was one; see [fencelock.Locker.Do].
func (s *Semaphore) Do(ctx context.Context, weight int, fn func(ctx context.Context) error) error {
	locks, err := s.with(weight)
	if err != nil {
		return err
	}
	return locks.Do(ctx, s.name, fn)
}

// TryDo is [Semaphore.Do] without waiting. If the permit does not fit, or others are waiting, it
// returns a *fencelock.HeldError at once and does not run fn.
func (s *Semaphore) TryDo(ctx context.Context, weight int, fn func(ctx context.Context) error) error {
	locks, err := s.with(weight)
	if err != nil {
		return err
	}
	return locks.TryDo(ctx, s.name, fn)
}

// Resize sets the size for all users, from now on. It replaces the size that they gave to New,
// which still bounds the weights that they may ask for. Existing permits stay: if they exceed the
// new size, nobody is admitted until enough of them are released. Waiters that fit into a larger
// size are admitted at once. The package comment says how long the engine stores the new size. A
// size below 1 or above 1,000,000,000 is fencelock.ErrInvalid.
func (s *Semaphore) Resize(ctx context.Context, size int) error {
	return s.locks.Resize(ctx, s.name, size)
}

// permit acquires a permit of that weight with acquire.
func (s *Semaphore) permit(weight int, acquire func(*fencelock.Locker) (*fencelock.Lock, error)) (*fencelock.Lock, error) {
	locks, err := s.with(weight)
	if err != nil {
		return nil, err
	}
	return acquire(locks)
}

// with returns a Locker whose locks are permits of that weight; 0 means 1.
func (s *Semaphore) with(weight int) (*fencelock.Locker, error) {
	if s.size < 1 { // a limit of 0 would mean no limit
		return nil, fmt.Errorf("%w: the size %d of %q is below 1", fencelock.ErrInvalid, s.size, s.name)
	}
	o := s.locks.Options()
	o.Shared, o.Limit, o.Weight = true, s.size, cmp.Or(weight, 1)
	o.Kind = fencelock.KindSemaphore
	return s.locks.WithOnly(o), nil
}
