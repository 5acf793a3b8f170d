// Package pglock is the engine on PostgreSQL: its advisory locks, made into leases, for any number
// of processes and hosts.
//
//	pool, err := pgxpool.New(ctx, "postgres://...")
//	...
//	locks := fencelock.New(pglock.New(pool, nil), nil)
//
// # What it promises
//
// At most one exclusive holder, leases that the server itself ends, fencing tokens that increase
// through restarts, promotions and restores, and first come first served between processes, one
// turn each. A lock is the advisory lock that other programs take with
// pg_advisory_lock(hashtextextended('name', 0)), or with pg_advisory_lock(42) for the name
// [Key](42). Such programs exclude this engine and are excluded by it.
//
// # What it cannot do
//
// It refuses a hot standby, whose locks exclude nobody on the primary; a connection pooler, unless
// [Config.AllowPooler] is set and the pooler is in session mode; and PostgreSQL before 14, which
// cannot end the session of a frozen client. After a crash, a restart or a promotion it grants
// nothing for [Config.MaxTTL], since the server has forgotten who holds. Programs that take the
// same advisory locks by themselves know nothing of leases, minimum holds and limits.
//
// # How it works
//
//  1. All uncontended locks of one TTL are on one connection, which asks the server to end it after
//     that time without a statement (idle_session_timeout). One statement renews all of them and
//     records when. A holder that is frozen or cut off sends none, and the server frees its locks.
//     There are at most four such connections.
//  2. One function call takes a lock and records its holder; one releases it and frees the row; see
//     sql/lock.sql. Each is one message and one transaction. A request that gets a lock and finds
//     an owner in the row knows that this owner vanished. The name then stays closed until a TTL
//     after the owner's last renewal.
//  3. Requests of this process for one key queue in the process, because the server grants a
//     session its own lock again. The first of them draws a ticket and waits in the server on a
//     connection of its own, on which the lock then stays. One statement waits for at most a third
//     of the TTL; the ticket keeps the place.
//  4. The token is the next number of a sequence. Nobody waits until it is on disk
//     (synchronous_commit is off), so a crash may set the sequence back. A crash, a new timeline,
//     another cluster and a restored dump therefore set it forward to the time, and that is on disk
//     before the first such token is issued. Minimum holds and limits are written to disk, too.
//  5. Statements that lock may be ended at any time: after an error the key is unlocked, or the
//     connection is destroyed. Nothing that may take longer than a sixth of a TTL runs on a
//     connection with leases.
//
// The interleavings are in docs/internals/postgres.md.
package pglock
