// Package semaphore limits how many holders work at the same time over all processes: at most five
// jobs on a GPU, or twenty connections to a partner.
//
//	patient := locks.With(fencelock.Options{Wait: time.Minute})
//	gpu := semaphore.New(patient, "gpu", 5)
//	err := gpu.Do(ctx, 2, func(ctx context.Context) error {
//		return train(ctx) // uses 2 of the 5; ctx is cancelled if the permit is lost
//	})
//	switch {
//	case err == nil: // done
//	case errors.Is(err, fencelock.ErrLost): // lost while train ran
//	case errors.Is(err, fencelock.ErrHeld): // not enough units were free for a minute
//	case errors.Is(err, fencelock.ErrUnavailable): // the server was unreachable
//	default: // an error of train, or another error of the lock
//	}
//
// A semaphore is one name of a fencelock.Locker, held in shared mode with a limit: the size.
// [Semaphore.Do] holds a permit while a function runs. [Semaphore.Acquire] returns the permit, a
// [fencelock.Lock], for code that does not fit into one function. [Semaphore.TryDo] and
// [Semaphore.TryAcquire] do not wait. Each permit has a weight: how many units of the size it
// takes. Ask for all units that you need in one permit: a holder of some units that waits for more
// can deadlock with another one.
//
// # Guarantees
//
// The weights of all permits never exceed the size, except after the size was lowered: existing
// permits stay, and a request that weighs more than the new size is granted when there is no other
// permit.
//
// Waiters are served first come, first served if the engine orders its waiters; see its page. Light
// requests do not overtake a heavy one, so units may stay unused until it fits. TryAcquire does not
// overtake it either.
//
// # Leases
//
// A permit is a lease with the TTL of the Locker and is renewed every third of it. If its process
// dies, the permit is free when the lease expires, on files at once. If the process is paused or
// cut off from the server, the context of the permit ends before the units are given to others, and
// its Err method returns the loss. On files there is no TTL: a paused process keeps its permits
// until it resumes or dies.
//
// A paused process can still execute one step after it resumes. Fencing tokens prevent that only in
// part, since several permits are valid at a time. Token grows from permit to permit. Floor is the
// lowest token that was valid when the permit was granted. A guarded resource stores the highest
// floor that it has seen, and refuses lower tokens. It refuses a lost permit when all older permits
// have ended, too, and a newer one has been used. Until then a lost permit can still write. If work
// must not be done twice, use an exclusive lock.
//
// # Changing the size
//
// All users of the name must use the same size; others get fencelock.ErrInvalid, because two sizes
// are usually a mistake in a deployment. To change the size while the semaphore is in use, call
// [Semaphore.Resize]. It applies to all users, whatever size they gave to New, and from then on
// their sizes may differ. So deploy a new size after a Resize.
//
// Files, PostgreSQL and memory store the new size as long as the directory, the schema or the store
// exists. Redis stores it as long as the last token of the name: for Config.Retention (7 days)
// after the last use. After that the size given to [New] applies again.
//
// Locker.Acquire on the same name, without options, takes the whole semaphore, for example for
// maintenance: it waits until all permits are released and then excludes everybody.
//
// # What it is not
//
// It does not number its permits: to assign one of five devices, use one lock for each. It does not
// limit how often something happens: use package ratelimit. Engines without limits return
// fencelock.ErrUnsupported. Redlock is one, since a majority of servers cannot count.
package semaphore
