// Package idempotent does a job once for each key, however often it is asked for: a
// payment that a client sends twice, an event that a queue delivers again.
//
//	jobs := idempotent.New(locks, engine.Records(), nil)
//	receipt, err := idempotent.Do(ctx, jobs, "payment:42", func(ctx context.Context) (Receipt, error) {
//		return charge(ctx) // once; who asks again gets the same receipt
//	})
//
// The first caller runs the job, and its result is stored. Whoever asks for the same key
// later gets the stored result, for Config.Retention. Whoever asks while the job runs waits
// for it, or gets [ErrInProgress] with [Options].NoWait.
//
// # What it promises
//
// A run holds the lock idempotent/KEY. So two runs of one key do not overlap, and no run
// begins after one has been completed. The run of a process that died, or was frozen or cut
// off, is taken over when the TTL of its lock has ended, and its context has ended before that. **Its
// completion is refused** when it wakes up: Do returns an error that is fencelock.ErrLost, and what
// the later run has stored stays. On files there is no TTL: the key of a process that died is free at
// once, and a frozen one keeps its key until it goes on, is killed, or its lock is broken.
//
// What a run has done to the outside world before it was lost, nobody can undo. A run that
// is taken over begins anew, so its effects should be such that they can be made again, or
// be refused: pass the key on, or guard the resource with the token of the run, which
// grows from run to run of a key. The guards of package fence find it in the context of the run: the
// name of its fence is idempotent/KEY.
//
// Outcomes last as the records of their engine do: see its page. On Redis a failover may forget
// the last completions. A run whose own record was forgotten stores it anew while it has its lock.
//
// Each key is the name of a lock. On Redis the last token of a name stays for a week, besides the
// record: where keys are many, use locks of an engine whose Retention is an hour.
//
// # Waiting
//
// Whoever asks while the job runs waits until the run has ended, and not for a turn of the lock:
// all are answered at once. Those of one process share one wait. They are readers of the lock,
// so whoever lists its waiters sees them.
//
// # Failures
//
// A run whose function returns an error, or panics, is over, and the next caller runs the
// job again. With Config.Remember a failure can be a result too: later callers get a
// [FailedError]. Options.Again runs a job again that is over.
//
// # Transactions
//
// What a job does in one PostgreSQL database can be committed together with the note that
// it is done, exactly once: package idempotentpgx.
//
// # HTTP
//
// [Store.Handler] serves requests with an Idempotency-Key so.
//
// # One key, one payload
//
// Give [Options].Payload what the job depends on. The same key with another payload is
// then [ErrMismatch]: a client has used a key twice.
package idempotent
