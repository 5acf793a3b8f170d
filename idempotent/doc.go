// Package idempotent runs a job once per key, however often it is requested, and stores its result:
// a payment that a client sends twice, or an event that a queue delivers again.
//
//	jobs := idempotent.New(locks, engine.Records(), nil)
//	patient := jobs.With(idempotent.Options{Wait: 10 * time.Second})
//
//	receipt, err := idempotent.Do(ctx, patient, "payment:42", func(ctx context.Context) (Receipt, error) {
//		return charge(ctx) // runs once; later callers get the same receipt
//	})
//	switch {
//	case err == nil: // charged now or earlier: receipt has the result
//	case errors.Is(err, fencelock.ErrLost): // charge may have run; another caller may run it again
//	case errors.Is(err, idempotent.ErrInProgress): // another caller has been running it for 10 s
//	case errors.Is(err, fencelock.ErrUnavailable): // the server is unreachable: charge may have run
//	default: // an error of charge: the next call runs it again
//	}
//
// The first caller runs the job. Later callers of the same key get the stored result, until
// Config.Retention is over. Callers that come while the job runs wait for its result, or get
// [ErrInProgress] with [Options].NoWait.
//
// # Guarantees
//
// A run holds the lock idempotent/KEY. Two runs of one key therefore do not overlap, and no run
// starts after one has completed. If the process of a run dies, is paused or is cut off from the
// server, another caller can take over when the lease of the lock expires. The context of the old
// run has ended before that. If the old process resumes, its result is refused: Do returns an error
// that is fencelock.ErrLost, and the result of the later run stays.
//
// On files there is no TTL. If a process dies, its key is free at once. A paused process keeps its
// key until it resumes, is killed, or its lock is broken.
//
// Only the result is recorded. Side effects of a run that lost its lock are not undone, and the
// next run starts from the beginning. So make side effects repeatable, or let the resource refuse
// them: pass on the key, or guard the resource with the token of the run, which grows from run to
// run of a key. The guards of package fence take it from the context of the run, under the lock
// name idempotent/KEY.
//
// Results are as durable as the records of the engine; see its page. On Redis a failover can lose
// the latest ones. A run whose record was lost stores it again as long as it holds its lock.
//
// Each key is also the name of a lock. On Redis the last token of a name is kept for a week, in
// addition to the record. If there are many keys, use locks of an engine whose Retention is one
// hour.
//
// # Waiting
//
// Callers that come while the job runs all get the answer as soon as the run ends. All callers in
// one process share one wait for a shared lock. It is listed as a waiter of the lock.
//
// # Failures
//
// If the function returns an error or panics, the run has no result and the next caller runs the
// job again. With Config.Remember an error can be a result too: later callers get a [FailedError].
// Options.Again runs a job again although it is over.
//
// # Transactions
//
// If everything a job does is in one PostgreSQL database, package idempotentpgx commits it together
// with the record that the job is done, exactly once.
//
// # HTTP
//
// [Store.Handler] is middleware for requests with an Idempotency-Key header.
//
// # Payload
//
// Pass the input of the job as [Options].Payload. If a key is used again with another payload, the
// error is [ErrMismatch]: a client has used one key for two requests.
package idempotent
