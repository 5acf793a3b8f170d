// Package cron runs each tick of a job on one of many instances only. A tick is one scheduled time
// of a job, such as today at 03:00.
//
// Every instance calls [Job.Tick] with the scheduled time. The first one runs the work, and the
// others get ErrSkipped:
//
//	job := cron.New(locks, "invoices", nil)
//	err := job.Tick(ctx, scheduled, func(ctx context.Context) error {
//		token, _ := fencelock.TokenFrom(ctx)
//		return bill(ctx, token) // ctx is cancelled if the lock of the job is lost
//	})
//	switch {
//	case err == nil: // run by this instance
//	case errors.Is(err, cron.ErrSkipped): // run by another instance, too late, or paused
//	default: // an error of bill, or of the engine: perhaps no instance ran this tick
//	}
//
// Package cron has no parser for cron expressions. It works with any scheduler that knows the
// scheduled time of a run. [Job.Run] is a small scheduler of its own. Package robfigcron adapts
// robfig/cron, and package gocronlock adapts gocron.
//
// # Records
//
// A lock that is held only while the job runs is not enough: if the job takes a millisecond and the
// clock of another host is a second late, that host finds the lock free and runs the same tick
// again.
//
// Therefore the engine stores a record of each job: which ticks were claimed, when and where the
// last run started, how it ended, and whether the job is paused. The instance that first writes a
// tick into the record runs it. It does so under the lock of the job, right before the work starts.
// An instance that fails before that leaves the tick to the next one. Clocks play no role in this: a
// claimed tick is not run again, even if [Config].Late is raised or a clock is changed. [Job.Status] and [List] read records;
// [Job.Pause] and [Job.Resume] change them.
//
// Config.Skew and Config.Late say when an instance may claim a tick. A record lists the newest
// hundred ticks that were run. An older tick is never run, even if it was missed, except that a few
// missed ones may run while the engine's clock is behind them.
//
// # Engines without records
//
// On an engine without records, such as Redlock, an instance claims a tick with a lock whose
// minimum hold is Config.Skew + Config.Late, whether the tick is run or not. An instance that asks
// later than that skips the tick as too late. This is weaker than a record:
//
//   - The clocks of the instances must not differ by more than Config.Skew.
//   - Old ticks may be run again after a deployment that raises Late, or if a clock is set back.
//   - [Job.Status] and [Job.Pause] are not available.
//
// The lock for the tick at 10:20 is named "invoices@20m0s". Names repeat every hour, or every 28
// days if claims are kept for more than half an hour, so a job does not leave a new name behind for
// every tick. All instances must use the same name, Skew and Late.
//
// An engine that can lose its data refuses a minimum hold that is longer than its MaxTTL, and then
// every tick fails with ErrInvalid. On Redlock, set MaxTTL to more than Skew plus Late.
//
// # Runs
//
// A run holds a lock on the name of the job, with the tick as its note. The tick is claimed under
// that lock. The fencing token of the lock is in the context and grows from run to run.
// Config.Overlap says what happens to a tick that comes due during an earlier run, on this or
// another instance. [Job.Now] starts a run without a tick.
//
// # When an instance dies
//
// A tick is run at most once. If an instance dies after claiming a tick, that tick is not run
// again, since nobody can tell how far it got. The record shows the run as lost. The lock of the
// job remains until its TTL is over. Until then further ticks are skipped, wait, or run at the same
// time, as Config.Overlap says. For work that must be done at least once, use a queue, or let each
// tick look for what is left to do.
//
// Records are as durable as the engine's data. They expire two years after their last change,
// except that the record of a paused job does not expire. If a record is lost, or a failover undoes
// its last change, a tick within Config.Late may be run again.
package cron
