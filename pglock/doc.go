// Package pglock implements fencelock's locks on PostgreSQL advisory locks, as leases, for any
// number of processes and hosts. It is for applications that use PostgreSQL already.
//
//	pool, err := pgxpool.New(ctx, "postgres://...")
//	...
//	locks := fencelock.New(pglock.New(pool, nil), nil)
//
// # Guarantees
//
// A lock has at most one exclusive holder. The server itself ends leases that are not renewed.
// Fencing tokens increase across restarts, promotions and restores. Processes are served first
// come, first served, one request at a time.
//
// A lock is the advisory lock that other programs take with
// pg_advisory_lock(hashtextextended('name', 0)), or with pg_advisory_lock(42) for the name
// [Key](42). Such programs and this engine exclude each other.
//
// # Limits
//
// The engine refuses to use:
//
//   - a hot standby, because its locks do not exclude clients of the primary
//   - a connection pooler, unless [Config.AllowPooler] is set and the pooler is in session mode
//   - PostgreSQL before 14, which cannot end the session of a frozen client
//
// After a crash, a restart or a promotion it grants nothing for [Config.MaxTTL], because the server
// has lost its locks. Programs that take the same advisory locks directly ignore leases, minimum
// holds and limits.
//
// # How it works
//
//  1. All uncontended locks with a similar TTL share one connection. The server ends that
//     connection when it has been idle for the TTL (idle_session_timeout). One statement renews
//     all of its locks and stores the time. If the holder freezes or is cut off, no statement
//     arrives and the server releases the locks. There are at most four such connections.
//  2. One function call takes a lock and stores its holder in a row. Another call releases it and
//     clears the row; see sql/lock.sql. Each call is one message and one transaction. A client
//     that gets the lock and finds a holder in the row therefore knows that this holder vanished.
//     The name then stays closed until one TTL after the holder's last renewal.
//  3. Requests of one process for the same key queue in the process, because the server would
//     grant a session's own lock to it again. The first of them draws a ticket and waits in the
//     server on a connection of its own, on which the lock is then held. One statement waits for
//     at most a third of the TTL; the ticket keeps the request's place.
//  4. The fencing token is the next number of a sequence. Grants do not wait until it is on disk
//     (synchronous_commit is off), so a crash may set the sequence back. After a crash, on a new
//     timeline, in another cluster and in a restored dump, the sequence is therefore set forward
//     to the current time, which is on disk before the first such token is issued. Minimum holds
//     and limits are also on disk before they take effect.
//  5. Statements that take locks may be cancelled at any time: after an error the key is unlocked
//     or the connection is closed. On a connection that has leases, a statement waits for the lock
//     of a row or a table for a thirty-second of the TTL, and is cancelled after a quarter of it.
package pglock
