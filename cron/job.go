package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// Config holds the settings of a Job. All instances must use the same values. The zero Config is
// ready to use.
type Config struct {
	// Skew is how much the clocks of two instances may differ. 0 means the default, one minute.
	Skew time.Duration

	// Late is how long after its scheduled time a tick may still start, by the clock of the
	// instance. Later it is skipped. It also bounds how far back CatchUp looks. 0 means the
	// default, one minute. Skew plus Late must not exceed 14 days.
	Late time.Duration

	// CatchUp is how many missed ticks to run: the newest ones within Late that no instance has
	// claimed, oldest first. They run one after the other, whatever Overlap says. Ticks from before
	// the first deployment of the job count as missed. 0, the default, means none.
	CatchUp int

	// Overlap says what happens to a tick that comes due during an earlier run. The default is
	// OverlapSkip.
	Overlap Overlap

	// OnTick is called with the outcome of each tick on this instance: the run, and the error that
	// Tick returns. If there was no run, such as for a *SkippedError, only Run.Tick is set. Times
	// are by the clock of this host. OnTick must not block. nil, the default, means no call.
	OnTick func(run Run, err error)

	// Logger receives failures as warnings, skipped ticks at info level, and runs at debug level.
	// nil, the default, means no logging.
	Logger *slog.Logger
}

// Job is work that one of many instances does for each tick of a schedule. Its methods may be
// called concurrently.
type Job struct {
	locks   *fencelock.Locker
	name    string
	cfg     Config // with defaults filled in
	invalid error  // why the job cannot be run; nil if it can

	// Set for the job of a due; nil otherwise.
	after         func(tick time.Time) time.Time // the following tick
	waitContextOf func(tick time.Time) context.Context
}

// New returns a job with the given name, which has at most 480 bytes and is also the name of the
// lock that its runs hold. It does no I/O. cfg may be nil.
//
// The options of locks have this meaning for a job:
//
//   - TTL is how long the lock of an instance that crashed blocks later runs.
//   - MinHold is the minimum time between the starts of two runs, whatever their ticks. A tick that
//     comes earlier is handled as Config.Overlap says. With OverlapAllow a MinHold is
//     fencelock.ErrInvalid.
//   - Note is replaced by the tick. Shared, Limit and Weight are replaced as Config.Overlap
//     requires.
func New(locks *fencelock.Locker, name string, cfg *Config) *Job {
	j := &Job{locks: locks, name: name}
	if cfg != nil {
		j.cfg = *cfg
	}
	j.cfg.Skew = cmp.Or(j.cfg.Skew, defaultSkew)
	j.cfg.Late = cmp.Or(j.cfg.Late, defaultLate)
	if j.cfg.Logger == nil {
		j.cfg.Logger = slog.New(slog.DiscardHandler)
	}
	j.invalid = j.check()
	return j
}

// Name returns the name of the job.
func (j *Job) Name() string { return j.name }

const (
	defaultSkew = time.Minute
	defaultLate = time.Minute

	longestName = 480 // in bytes; the names of claims are longer

	longRing = 28 * 24 * time.Hour // the longer period after which the names of claims repeat
)

// early is how long before its time a tick counts as due. Timers use another clock than the wall
// clock and may fire slightly early.
const early = 50 * time.Millisecond

// check returns an ErrInvalid if the job cannot be run.
func (j *Job) check() error {
	switch {
	case j.locks == nil || j.name == "":
		return fmt.Errorf("%w: a job needs a Locker and a name", fencelock.ErrInvalid)
	case driver.CheckName(j.name) != nil:
		return driver.CheckName(j.name)
	case len(j.name) > longestName:
		return fmt.Errorf("%w: the name of the job has %d bytes, more than %d", fencelock.ErrInvalid, len(j.name), longestName)
	case j.cfg.Skew < 0 || j.cfg.Late < 0 || j.cfg.CatchUp < 0:
		return fmt.Errorf("%w: skew %v, late %v and catch-up %d: none of them may be negative",
			fencelock.ErrInvalid, j.cfg.Skew, j.cfg.Late, j.cfg.CatchUp)
	case j.cfg.Overlap == OverlapAllow && j.locks.Options().MinHold > 0:
		return fmt.Errorf("%w: with OverlapAllow runs of %q share a lock, but a minimum hold needs an exclusive one: leave out MinHold, or use OverlapSkip",
			fencelock.ErrInvalid, j.name)
	case max(j.cfg.Skew, j.cfg.Late) > longRing/2 || j.cfg.Skew+j.cfg.Late > longRing/2-early: // the sum may overflow
		return fmt.Errorf("%w: skew %v plus late %v must not exceed %v", fencelock.ErrInvalid, j.cfg.Skew, j.cfg.Late, longRing/2)
	}
	return nil
}

// book returns the store of the job's record. It returns fencelock.ErrUnsupported if the engine has
// no records, and ErrInvalid if the job cannot be run.
func (j *Job) book() (book, error) {
	if j.invalid != nil {
		return book{}, j.invalid
	}
	records, err := j.locks.Records()
	return book{records, j.name, j.cfg.Skew + j.cfg.Late}, err
}

// skipped returns the error of a tick that the lock of another run prevents.
func (j *Job) skipped(tick time.Time, why Reason, err error) error {
	held, _ := errors.AsType[*fencelock.HeldError](err)
	return &SkippedError{Job: j.name, Tick: tick, Reason: why, Held: held}
}

// report passes the outcome of a tick to the tracer, OnTick and the logger. run.Started is zero if
// there was no run.
func (j *Job) report(ctx context.Context, run Run, err error) {
	if hook := j.locks.Tracer().TickEnd; hook != nil {
		hook(ctx, fencelock.TraceTick{
			Job: j.name, Engine: j.locks.EngineName(), Tick: run.Tick, Outcome: outcome(run, err),
			Token: run.Token, Took: run.Ended.Sub(run.Started), Err: err,
		})
	}
	if j.cfg.OnTick != nil {
		j.cfg.OnTick(run, err)
	}
	log := j.cfg.Logger.With("job", j.name, "tick", run.Tick)
	skipped, ok := errors.AsType[*SkippedError](err)
	switch {
	case ok && run.Started.IsZero():
		log.Info("tick skipped", slog.String("reason", string(skipped.Reason)), "error", err)
	case err != nil:
		log.Warn("tick failed", "token", run.Token, "took", run.Ended.Sub(run.Started), "error", err)
	default:
		log.Debug("tick run", "token", run.Token, "took", run.Ended.Sub(run.Started))
	}
}

// outcome returns the outcome of a tick in one word, for tracers.
func outcome(run Run, err error) string {
	skipped, ok := errors.AsType[*SkippedError](err)
	switch {
	case !run.Started.IsZero() && err == nil:
		return "ok"
	case !run.Started.IsZero():
		return "failed"
	case !ok:
		return "error"
	}
	switch skipped.Reason {
	case ReasonClaimed, ReasonStarting:
		return "claimed"
	case ReasonOverlapped:
		return "overlapped"
	case ReasonTooLate:
		return "late"
	case ReasonPaused:
		return "paused"
	}
	return "error"
}
