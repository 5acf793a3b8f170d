package semaphore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/fencelock/fencelock"
)

// Semaphore is a name that many hold at once, up to a size. It is safe for
// concurrent use, needs no closing, and runs no goroutine of its own.
type Semaphore struct {
	locks *fencelock.Locker
	name  string
	size  int
}

// New returns a semaphore of the given size, 1 to 1,000,000,000, for whoever uses the same
// name on the same engine. It does no I/O. The Locker's TTL, grace, wait limit,
// note and OnWait are those of the permits. Its Shared, Limit and Weight are not: the
// semaphore sets these itself. A Locker with Options.MinHold is fencelock.ErrInvalid.
func New(locks *fencelock.Locker, name string, size int) *Semaphore {
	return &Semaphore{locks: locks, name: name, size: size}
}

// Name returns the name of the semaphore.
func (s *Semaphore) Name() string { return s.name }

// Acquire waits until it holds a permit of that weight, no longer than ctx and the
// Locker's wait limit allow, and returns it, a lock like any other, which the caller must Release.
// ctx bounds the wait and never the permit. Weight 0 is 1.
//
// A weight above the size given to New is fencelock.ErrInvalid at once, even if the
// semaphore was made larger since. A wait that ends without a permit is the context's error,
// and besides fencelock.ErrHeld, or fencelock.ErrUnavailable if the engine was out of reach; see
// [fencelock.Locker.Acquire].
func (s *Semaphore) Acquire(ctx context.Context, weight int) (*fencelock.Lock, error) {
	return s.permit(weight, func(l *fencelock.Locker) (*fencelock.Lock, error) { return l.Acquire(ctx, s.name) })
}

// TryAcquire is Acquire without waiting: if the permit does not fit, or others wait
// for theirs, it returns a *fencelock.HeldError at once, which names the oldest
// holder.
func (s *Semaphore) TryAcquire(ctx context.Context, weight int) (*fencelock.Lock, error) {
	return s.permit(weight, func(l *fencelock.Locker) (*fencelock.Lock, error) { return l.TryAcquire(ctx, s.name) })
}

// Do runs fn while holding a permit of that weight. It waits for the permit first,
// as Acquire does. The context given to fn is ctx with the permit's fencing token;
// it also ends when the permit is lost, with a cause that is fencelock.ErrLost. Do
// returns fn's error, joined with the loss if there was one; see [fencelock.Locker.Do].
func (s *Semaphore) Do(ctx context.Context, weight int, fn func(ctx context.Context) error) error {
	locks, err := s.with(weight)
	if err != nil {
		return err
	}
	return locks.Do(ctx, s.name, fn)
}

// TryDo is Do without waiting: if the permit does not fit, or others wait for theirs, it
// returns a *fencelock.HeldError at once and fn does not run.
func (s *Semaphore) TryDo(ctx context.Context, weight int, fn func(ctx context.Context) error) error {
	locks, err := s.with(weight)
	if err != nil {
		return err
	}
	return locks.TryDo(ctx, s.name, fn)
}

// Resize sets the size for everybody, from now on: it takes the place of the size
// they gave to New, which still bounds the weights they may ask for. Permits stay,
// even if they are too many now: nobody new gets in until enough are back. Waiters
// who fit into a larger size get in at once. How long the engine remembers it, see
// the package comment. It is fencelock.ErrInvalid for a size below 1 or above
// 1,000,000,000.
func (s *Semaphore) Resize(ctx context.Context, size int) error {
	return s.locks.Resize(ctx, s.name, size)
}

// permit gets a permit of that weight with acquire.
func (s *Semaphore) permit(weight int, acquire func(*fencelock.Locker) (*fencelock.Lock, error)) (*fencelock.Lock, error) {
	locks, err := s.with(weight)
	if err != nil {
		return nil, err
	}
	return acquire(locks)
}

// with returns a Locker whose locks are permits of that weight; 0 is 1.
func (s *Semaphore) with(weight int) (*fencelock.Locker, error) {
	if s.size < 1 { // which would be no limit at all
		return nil, fmt.Errorf("%w: the size %d of %q is below 1", fencelock.ErrInvalid, s.size, s.name)
	}
	o := s.locks.Options()
	o.Shared, o.Limit, o.Weight = true, s.size, cmp.Or(weight, 1)
	return s.locks.WithOnly(o), nil
}
