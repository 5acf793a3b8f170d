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
//     One statement renews them all; a holder that is frozen or cut off sends
//     none, and the server frees its locks.
//  2. Requests of this process for one key stand in line here, since the server
//     grants a session's own lock to it again. The first of them waits in the
//     server on a connection of its own, which the lock then stays on.
//  3. The token is epoch << 40 plus a sequence, taken in the statement that takes
//     the lock, or before, while the request waits and is certain to come right
//     after another holder; see fencelock.ahead in the schema. Nobody waits until
//     it is on disk (synchronous_commit is off), so a crash may set the sequence
//     back. But a crash begins a new epoch, as does a new timeline, another
//     cluster or a restored dump, and an epoch is on disk before the first token
//     of it is given out. So are minimum holds and limits.
//  4. Who holds is written down a few milliseconds later, on a connection of the
//     engine's own, for people who ask, and so that a name stays closed until the
//     end of the lease when its connection ends otherwise than by letting go: the
//     process was killed, or the connection was cut and its holder may not know.
//     A lock that is held for less than that is never written down, and in that
//     first moment the end of its connection opens the name at once, though the
//     holder may not know yet; its token is out of date then. A holder that lets
//     go marks that with advisory locks before it unlocks; who waits looks in
//     advance whom it comes after, so that its grant needs to see the mark only.
//  5. A statement that locks is never cancelled on a connection that other locks
//     live on. After an error or a cancelled wait the lock is unlocked, or the
//     connection is destroyed.
package pglock
