// Package otelfencelock reports metrics and spans of locks to OpenTelemetry.
//
//	tracer := otelfencelock.NewTracer() // the global providers of OpenTelemetry
//	locks := fencelock.New(engine, &fencelock.Config{Tracer: tracer})
//	limiter := ratelimit.New(engine, "api", limit, &ratelimit.Config{OnDecision: tracer.RateEnd})
//
// Packages election, cron, semaphore and idempotent report through the Locker that they are given.
// It needs the OpenTelemetry API only; the program chooses the SDK and its exporters. Create one
// tracer for the program: it may serve several Lockers.
//
// # Metrics
//
//   - fencelock.acquire.duration: successful acquisitions. contended says whether they had to wait.
//   - fencelock.acquire.failures: error.type is held, timeout, canceled, unavailable, config,
//     invalid or _OTHER.
//   - fencelock.hold.duration: hold.end is released or lost.
//   - fencelock.hold.count, fencelock.hold.oldest: the locks held now, and the age of the oldest.
//   - fencelock.hold.losses: error.type is expired (not renewed in time), broken (by Break) or gone
//     (the engine does not have it any more).
//   - fencelock.wait.count: the acquisitions in a queue now.
//   - fencelock.renewal.duration: batches of renewals.
//   - fencelock.renewal.margin: the least part of its lease that a lock of a batch still had. It is
//     about 0.6 if renewals are in time. At 0 a lock is lost.
//   - fencelock.renewal.locks: result is renewed, failed or gone.
//   - fencelock.release.duration: with error.type if the release failed.
//   - fencelock.fence.refusals: writes that guards refused.
//   - fencelock.election.leading, fencelock.election.terms: 1 while this process leads, and the
//     terms that it began.
//   - fencelock.cron.ticks: result is ok, failed, claimed, overlapped, late, paused or error.
//   - fencelock.cron.run.duration: result is ok or failed.
//   - fencelock.idempotent.outcomes: result is done, failed, lost, stored, in_progress, mismatch or
//     error.
//   - fencelock.ratelimit.decisions: result is granted, limited or failed. error.type says why the
//     engine was down, also if the limiter granted without it.
//
// Losses, refusals and a few others are exported as 0 from the first use of a class, so that an
// alert on their increase sees the first one.
//
// # Attributes
//
// Metrics of locks have the attributes engine, mode (exclusive or shared), kind (lock, election,
// cron, semaphore, or the Options.Kind of a program) and class. Renewals have only engine. Ticks,
// outcomes and decisions have engine and class.
//
// The class stands for the name, since each name would be a time series: it is the text before the
// first colon or slash, such as "invoice" of "invoice:42". The names of elections, cron jobs and
// limiters are whole classes. Each kind has at most 20 classes; names beyond them have the class
// _OTHER. [WithClass] replaces the rule.
//
// # Spans
//
// An acquisition and a hold are one span each. Work under a lock belongs to the span of the hold.
// The span of an acquisition that waited links to the trace of the holder that it waited for, in
// whatever process that is: the engine stores the traceparent with the lock.
//
// Spans have the name of the lock, its token and the attributes above, with the prefix fencelock.
package otelfencelock
