// Package fencelock provides locks that processes share, on Redis, PostgreSQL, Redlock or files.
//
// A lock on a server is a lease, which is renewed in the background while it is held. If it cannot
// be renewed, its context is cancelled before the lease expires. Every acquisition returns a
// fencing token, an increasing number with which a database can refuse the write of an earlier
// holder. A lock on files has no lease: the kernel frees it when its process ends.
//
// # A first program
//
// Create one engine and one [Locker] for the whole program, and use [Locker.Do]:
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"}) // go-redis
//	engine := goredis.New(client, nil)                                // package redislock/goredis
//	defer engine.Close()
//	locks := fencelock.New(engine, nil)
//
//	patient := locks.With(fencelock.Options{Wait: 5 * time.Second})
//	err := patient.Do(ctx, "invoice:42", func(ctx context.Context) error {
//		token, _ := fencelock.TokenFrom(ctx)
//		return charge(ctx, "42", token) // ctx is cancelled if the lock is lost
//	})
//	switch {
//	case err == nil: // charged, and the lock was held until charge returned
//	case errors.Is(err, fencelock.ErrLost): // lost while charge ran: check what it did
//	case errors.Is(err, fencelock.ErrHeld): // another process held the lock for all of the 5 s
//	case errors.Is(err, fencelock.ErrUnavailable): // Redis was unreachable; charge did not run
//	default: // an error of charge, or another error of the lock
//	}
//
// Without Options.Wait, Do waits until ctx ends; with context.Background() that can be for ever.
// [Locker.TryDo] does not wait. [Locker.Acquire] and [Locker.TryAcquire] return the [Lock], for
// code that does not fit into one function. [Locker.DoAll] holds several names. Call [Locker.Check]
// at start-up to find a server that is unreachable or not usable.
//
// # Which package
//
// An engine stores the locks. The code above is the same for each:
//
//   - redislock: Redis 6.2 or later, and Valkey. redislock/goredis takes a go-redis client.
//   - pglock: PostgreSQL 14 or later. LockTx takes a lock for one transaction.
//   - redlock: a majority of independent Redis servers.
//   - filelock: files, for the processes of one host.
//   - memlock: memory, for tests. It can inject faults.
//
// More packages build on the locks:
//
//   - election: one leader at a time.
//   - cron: each scheduled run on one host only.
//   - semaphore: at most N holders at once.
//   - idempotent: a request or a job once per key, with its result stored.
//   - ratelimit: a rate for all processes together.
//   - optimistic: compare-and-swap of a small value.
//   - dashboard: a page that shows holders and waiters live.
//   - fence: checks fencing tokens at the resource that a lock protects.
//
// Limits, records and rates are optional features of an engine. Redlock has none of them.
//
// # Durations
//
// Four durations are independent of each other:
//
//   - The wait limit ([Options].Wait, or the context given to Acquire) bounds only the wait.
//   - The TTL is how long after the last renewal the lease expires.
//   - The hold lasts as long as the caller wants, or at most [Options].MaxHold.
//   - The grace is how long before the deadline the context of the lock ends.
//
// # Losing a lock
//
// A lock is lost if its lease cannot be renewed in time, or if the engine reports that it is gone.
// The context of the lock then ends with a cause that satisfies errors.Is(cause, [ErrLost]). The
// deadline is counted from the moment before the last acknowledged request was sent, so the context
// ends before the lease expires on the server.
//
// A server that loses the lock itself, such as a Redis that fails over to a replica without the
// latest writes, can let a second holder in earlier.
//
// Call [Lock.Err] right before a step that must not run without the lock. It does no I/O and is
// exact, even after a pause of the process. A process can still be paused between that call and the
// step. Only a fencing token protects against this: pass [Lock.Token] to the resource, and let it
// refuse a token that is lower than one it has seen. Package fence and its sub-packages do this for
// PostgreSQL, MySQL, Redis, HTTP, gRPC, files and object stores.
//
// # What it is not
//
//   - Not a consensus system. How safe a lock is depends on its engine; docs/guarantees.md in the
//     repository says what each guarantees after which failure.
//   - Not re-entrant. Two acquisitions of one name exclude each other, also within one process.
//   - Not a deadlock detector. Take several names with one call of [Locker.DoAll].
//   - Not a job queue.
//   - Not a replacement for sync.Mutex among the goroutines of one process.
package fencelock
