// Package semaphore lets so many of many processes work at once, and no more:
// five jobs on the accelerator, twenty connections to a partner.
//
//	gpu := semaphore.New(locks, "gpu", 5)
//	err := gpu.Do(ctx, 2, func(ctx context.Context) error {
//		return train(ctx) // with 2 of the 5; stop when ctx ends
//	})
//
// A semaphore is one name of a fencelock.Locker, held in shared mode with a limit,
// the size. [Semaphore.Do] holds a permit while a function runs, and
// [Semaphore.Acquire] gives the permit, a [fencelock.Lock], to code that cannot be a function;
// [Semaphore.TryDo] and [Semaphore.TryAcquire] do not wait. A permit has a weight: how
// much of the size it takes. Ask for all you need in one permit: who holds some while it
// waits for more can wait for ever.
//
// # What it promises
//
// The weights of the permits that stand never add up to more than the size, with
// two exceptions that are the size's doing: permits stay when the size is lowered,
// and one that weighs more than a lowered size gets in when it is alone.
//
// Who asks first gets in first, as far as the engine keeps an order (see its page):
// a heavy request is not passed by light ones behind it, and free units may lie
// idle until it fits. TryAcquire does not pass it either.
//
// # A permit is leased
//
// It stands for the TTL of the Locker and is renewed at a third of it. A process
// that dies gives its permits back without a word: when the TTL ends, and at once
// on files. None leaks. A process that is frozen, or cut off from the engine, finds
// the context of its permit ended before the engine gives the units to others, and
// its Err says so. (On files there is no TTL: a frozen process keeps its
// permits until it goes on or dies.)
//
// What such a process may still do in its last step, fencing catches in part. Token
// grows from permit to permit, and Floor is the smallest token that stood when the
// permit was granted: a resource that keeps the greatest floor it has seen, and
// refuses tokens below, shuts a permit out once it and all older ones have ended
// and a new one has come. An old permit that goes on for long keeps that door
// open for younger ones that were lost; what must not run twice wants an exclusive
// lock.
//
// # The size
//
// All who use the name must ask with the same size, or get fencelock.ErrInvalid:
// two sizes are a mistake in a deployment. To change the size while everybody
// works, call [Semaphore.Resize]: it holds for all, whatever size they were made
// with, and from then on sizes may differ. So a deployment with a new size begins
// with a Resize.
//
// Files, PostgreSQL and memory remember a Resize as long as the directory, the schema
// or the store is there. Redis remembers it as long as the last token of the name,
// for Config.Retention (7 days) after its last use, and then the size given to [New]
// counts again.
//
// Locker.Acquire of the same name, without options, takes the whole semaphore: it
// waits until all permits are back and then keeps everybody out, for maintenance.
//
// # What it is not
//
// It does not say which of five things a permit is for: for numbered things take
// one lock for each. It bounds how many work at once, and not how often: a limit
// of requests for each second is something else. And engines without limits
// (redlock, since a majority cannot count) answer fencelock.ErrUnsupported.
package semaphore
