// Package election provides leader election: one of many processes is in charge, and another one
// takes over when it stops or dies.
//
//	err := election.Run(ctx, locks, "billing", func(ctx context.Context) error {
//		term, _ := fencelock.TokenFrom(ctx)
//		return serve(ctx, term) // return when ctx ends: this process does not lead any more
//	})
//	// err is the error of serve, or that of the campaign, such as fencelock.ErrConfig
//
// [Run] waits until this process leads and then calls the function. If leadership is lost, it waits
// for the function to return and campaigns again. Most programs should use Run. It has no wait
// limit: cancel ctx to stop it.
//
// [New] makes a [Candidate], which can also publish a value such as its address, resign on request,
// answer health checks, be preferred to others (Config.Rank), and limit how long its work may take to
// stop. [Candidate.Terms] is Run as a loop. [Observe] and [Current] return the leader, in any
// process; Config.OnLeader is called with each.
//
// # Guarantees
//
// A term is one period of leadership. It is one acquisition of the lock with the election's name.
// Its number is the fencing token, which only grows, over all processes.
//
// The context of a term that cannot be renewed ends before another candidate can lead. The time in
// between is the grace of the Locker, or a fifth of its TTL: use it to stop the work. After a
// resignation or a shutdown the lock is released only after the work has returned, so a clean
// change of leaders has no overlap. A process does not campaign while the work of its last term
// still runs.
//
// Two leaders can overlap in these cases:
//
//   - The lock is broken with Locker.Break or [Depose]. The next candidate leads at once; the old
//     leader's context ends when its process is notified, or with its lease.
//   - The work ignores the end of its context. After [Config].ShutdownTimeout, Run returns
//     [ErrStuck]; end the process then.
//   - The process is paused and resumes after its lease has expired. It may execute one more step.
//   - The server loses the lock, such as a Redis that fails over. The guarantees page of the
//     repository describes each engine.
//
// Against all of them, pass the number of the term to the resource that the leader writes to, and
// let it refuse lower numbers; see package fence.
//
// If a leader stops cleanly, the next one takes over at once. If it crashes, the next one takes
// over when its lease expires: the TTL of the Locker bounds the time without a leader. On files,
// which have no TTL, the lock ends with the process.
//
// # Ranks
//
// Candidates can have ranks. Of those that wait, the best one leads next, and a leader resigns to a
// better one that has waited for Config.Settle. A rank is a preference and no promise: it is the
// candidates that give way to each other, and the engine does not know ranks. Observers may see one
// that gives way as the leader for a moment. [Transfer] lets a candidate on a given host lead.
package election
