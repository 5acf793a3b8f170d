// Package pglock is the engine for people who run PostgreSQL already: its
// advisory locks, made into leases, by any number of processes and hosts.
//
//	pool, err := pgxpool.New(ctx, "postgres://...")
//	...
//	locks := fencelock.New(pglock.New(pool, nil), nil)
//
// # What it promises
//
// At most one exclusive holder, leases that the server itself ends, fencing
// tokens that rise through restarts, promotions and restores, and first come first
// served between processes, one turn each. A lock is the very advisory lock that
// other programs take with pg_advisory_lock(hashtextextended('name', 0)), or with
// pg_advisory_lock(42) for the name [Key](42); they exclude us, and we them.
//
// # What it is not
//
// It refuses a hot standby, whose locks exclude nobody on the primary, a
// connection pooler (unless [Config.AllowPooler] is set and it is in session
// mode), and PostgreSQL before 14, which cannot end the session of a frozen
// client. After a crash, a restart or a promotion it grants nothing for
// [Config.MaxTTL], since the server forgot who holds. Programs that take the same
// advisory locks by themselves know nothing of leases, minimum holds and limits.
//
// # How it works
//
//  1. All uncontended locks of one TTL live on one connection, which asks the
//     server to end it after that time without a statement (idle_session_timeout).
//     One statement renews them all, and writes down when; a holder that is frozen or
//     cut off sends none, and the server frees its locks. There are four such
//     connections at most.
//  2. One function call takes a lock and writes down who holds it, and one gives it
//     back and frees the row; see sql/lock.sql. Each is one message and one
//     transaction. So whoever gets a lock and finds an owner in the row knows that
//     this one vanished, and the name stays closed until a TTL after its last renewal.
//  3. Requests of this process for one key stand in line here, since the server
//     grants a session's own lock to it again. The first of them draws a ticket and waits
//     in the server on a connection of its own, which the lock then stays on. One
//     statement waits for a third of the TTL at most; the ticket keeps the place.
//  4. The token is a sequence's next number. Nobody waits until it is on disk
//     (synchronous_commit is off), so a crash may set the sequence back. But a crash, a
//     new timeline, another cluster and a restored dump set it forward to the time, which
//     is on disk before the first such token is given out. So are minimum holds and limits.
//  5. Statements that lock are made so that they may be ended at any time: after an error
//     the key is unlocked, or the connection is destroyed. Nothing that may take
//     longer than a sixth of a TTL runs on a connection with leases.
package pglock
