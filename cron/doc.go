// Package cron lets exactly one of many instances run each tick of a job. It
// brings no parser and works below any scheduler: hand it the time for which a
// run was scheduled.
//
//	job := cron.New(locks, "invoices", nil)
//	err := job.Tick(ctx, scheduled, func(ctx context.Context) error {
//		token, _ := fencelock.TokenFrom(ctx)
//		return bill(ctx, token)
//	})
//
// [Job.Run] is a small scheduler of its own. The packages below this one adapt
// robfig/cron and gocron.
//
// # Records
//
// A plain lock around a job is not enough: when the job is done in a millisecond
// and the clock of another host is a second late, that host finds the lock free
// and runs the same tick again. So the engine keeps a record of each job: which ticks
// have been taken, how the last run ended, where and when, and whether the job is
// paused. Who writes a tick into the record runs it. No clock has a part in that: a tick
// that has been taken is not run again, whatever [Config].Late becomes and whatever
// clocks are set to. [Job.Status] and [List] read the records, [Job.Pause] and
// [Job.Resume] write them.
//
// Of the ticks older than the newest hundred that were run, none is run any more, also if it
// was missed; while the engine's clock is behind them, a few of those that were missed still are.
// Config.Skew and Config.Late say when an instance asks for a tick at all.
//
// # Claims
//
// An engine without records, such as Redlock, has locks as claims: on the job
// and the scheduled time, kept for Config.Skew + Config.Late, run or no run: for as long as
// any instance may still ask. Whoever asks later than that is late by its own
// clock and is refused. That is weaker: clocks must not differ by more than
// Config.Skew; a deployment that raises Late may run old ticks again, and so may a clock that is
// set back; nobody can say when a job last ran; and there is no pause.
//
// The lock of the claim for a tick at 10:20 is named "invoices@20m0s": names come
// again every hour, or every 28 days if claims are kept for more than half an
// hour, so that a job leaves no new name behind for every tick. All instances
// must agree on the Name, and on which of the two it is.
//
// A claim is a minimum hold. An engine that may lose its memory refuses one that is longer
// than its MaxTTL, and then every tick is ErrInvalid: on Redlock MaxTTL must be longer than
// Skew and Late together.
//
// # Runs
//
// Taking a tick says who runs it. The run itself holds a lock on the
// plain name of the job, whose token travels in the context: tokens grow from
// one run to the next. [Job.Now] is a run without a tick. Config.Overlap says what
// happens to a tick that comes due while the run before it goes on, here or elsewhere.
// While it runs, that lock's status shows the tick as its note.
//
// # When an instance dies
//
// A tick is run at most once. An instance that dies after it took a tick takes it along:
// nobody runs it again, since nobody can tell how far it came. The record shows the
// run as Lost. Its lock on the job stands until its TTL is over; until then further
// ticks are skipped, wait, or run beside it, as Config.Overlap says. Work that must be
// done at least once belongs into a queue, or asks at each tick what is left to do.
//
// Records last as the engine's data do, and for two years after their last change; that of a paused
// job lasts. Where that is lost, or a failover takes back the
// last of it, a tick within Config.Late may be run again.
package cron
