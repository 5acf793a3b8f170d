// Package fencelock gives processes locks that they share: on one host through
// files, in one process through memory, and on servers through the engines that
// the sub-packages hold.
//
// You hold a lock for a term, not for ever. Every acquisition carries a fencing
// token; losing the lock ends a context before anyone else can have it; and what
// each engine can and cannot promise is written down and tested.
//
// # Use
//
// Most programs should use [Locker.Do]:
//
//	locks := fencelock.New(filelock.New("/var/lib/myapp", nil), nil)
//
//	err := locks.Do(ctx, "invoice:42", func(ctx context.Context) error {
//		token, _ := fencelock.TokenFrom(ctx)
//		return charge(ctx, token)
//	})
//
// Do waits for its turn, keeps the lease renewed while the function runs, ends
// the function's context with a cause that satisfies errors.Is(cause, [ErrLost])
// if the lock is lost, and releases. [Locker.Acquire] and [Locker.TryAcquire]
// give the [Lock] itself to code that cannot be a function.
//
// # Four times, and separate
//
// The wait limit ([Options].Wait, or the context given to Acquire) bounds the
// wait only. The TTL is how long after the last renewal the engine lets others
// in. The hold lasts as long as the caller likes. The grace is how long before
// the deadline the lock's context ends.
//
// # Losing a lock
//
// The deadline counts from before the request that the engine last acknowledged,
// so the holder's context ends before the engine lets anyone else in, by the
// largest reading of three clocks. Code that must not run without the lock
// checks [Lock.Err] right before its dangerous step: it is exact and does no
// I/O. A process that was stopped between that check and the step is caught by
// the fencing token alone: hand [Lock.Token] to the protected resource and let
// it refuse smaller ones.
//
// # What this is not
//
// It is not consensus: a lock plus a resource that ignores tokens is as safe as
// the engine's guarantees page says and no safer. It is not re-entrant: two
// acquisitions of one name exclude each other, also within one process. It is
// not a queue of work, and not a mutex for goroutines of one process.
package fencelock
