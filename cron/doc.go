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
// # Claims
//
// A plain lock around a job is not enough: when the job is done in a millisecond
// and the clock of another host is a second late, that host finds the lock free
// and runs the same tick again. So the claim is on the job and the scheduled
// time, and it is kept for Config.Skew + Config.Late, run or no run: for as long as
// any instance may still ask. Whoever asks later than that is late by its own
// clock and is refused. Clocks may differ by Config.Skew, and no more.
//
// The lock of the claim for a tick at 10:20 is named "invoices@20m0s": names come
// again every hour, or every 28 days if claims are kept for more than half an
// hour, so that a job leaves no new name behind for every tick. All instances
// must agree on the Name, and on which of the two it is.
//
// # Runs
//
// The claim says who runs the tick. The run itself holds a second lock, on the
// plain name of the job, whose token travels in the context: tokens grow from
// one run to the next. Config.Overlap says what happens to a tick that comes due
// while the run before it goes on, here or elsewhere. While it runs, that lock's
// status shows the tick as its note.
//
// # When an instance dies
//
// A tick is run at most once. An instance that dies after its claim takes the
// tick with it: nobody runs it again, since nobody can tell how far it came. Its
// lock on the job stands until its TTL is over; until then further ticks are
// skipped, wait, or run beside it, as Config.Overlap says. Work that must be done
// at least once belongs into a queue, or asks at each tick what is left to do.
package cron
