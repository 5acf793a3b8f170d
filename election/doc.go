// Package election keeps one of many processes in charge: it campaigns for a
// name, leads while it holds it, and campaigns again by itself after a loss.
//
//	err := election.Run(ctx, locks, "billing", func(ctx context.Context) error {
//		term, _ := fencelock.TokenFrom(ctx)
//		return serve(ctx, term) // until ctx ends
//	})
//
// Most programs should use [Run]. [New] makes a [Candidate], which publishes a
// value (its address; [Term.Publish] changes it), resigns on request, answers health checks and bounds how
// long its work may take to stop. [Candidate.Terms] is Run as a loop. [Observe]
// tells everybody else who leads.
//
// # What it promises
//
// A term is one acquisition of the name, and its number is the fencing token: it
// only grows, across all processes. The context of a term that cannot be renewed ends
// before the engine lets anyone else lead, by the grace of the Locker or a fifth of its TTL: the
// time for its work to stop.
// A name is given back only after the work of the
// term has returned, so a clean change of leaders has no overlap. A process does
// not campaign again while the work of its last term still runs.
//
// Who breaks the name, or calls [Depose], takes it away at once: the term ends when its
// process hears of that, or with its lease. And nothing stops work that ignores its context. Such work goes on beside the next
// leader's; [Config].ShutdownTimeout makes that an error, and the right answer to it is
// to end the process. A process that was frozen may also take one more step when
// it thaws. Hand the term's number to whatever the leader writes to, and let it
// refuse smaller ones.
//
// A leader that stops cleanly is followed at once. One that vanished is followed
// when its TTL is over: the TTL of the Locker is the time without a leader.
package election
