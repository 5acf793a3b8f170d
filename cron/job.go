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

// Config is what a Job does beside claiming its ticks. All instances use the same values.
// The zero Config is useful.
type Config struct {
	// Skew is how far apart the clocks of two instances may be. 0 means the
	// default, one minute.
	Skew time.Duration

	// Late is how long after its time, by the clock of the instance, a tick may
	// still begin; after that it is skipped. It bounds how far back CatchUp looks.
	// 0 means the default, one minute. Skew and Late together are at most 14 days.
	Late time.Duration

	// CatchUp is how many ticks to make up for that came due while nobody looked:
	// the newest so many within Late, oldest first, unless somebody has claimed
	// them. Several wait for one another, whatever Overlap says. Ticks before a job was first deployed count as well. 1 makes up for the last one. 0, the
	// default, makes up for none.
	CatchUp int

	// Overlap is what to do with a tick that comes due during an earlier run.
	// The default is OverlapSkip.
	Overlap Overlap

	// OnTick is told how each tick ended on this instance, with the run that it had and what
	// Tick returned. A tick without a run, with a *SkippedError for one, has a Run of
	// its Tick alone. The times are those of this host. It must not block. nil, the default, is no call.
	OnTick func(run Run, err error)

	// Logger gets failures as warnings, skipped ticks as information, and runs at
	// debug level. nil, the default, is silent.
	Logger *slog.Logger
}

// Job is work that is done once for each tick of a schedule, by one of many
// instances. Its methods may be called from many goroutines at once.
type Job struct {
	locks   *fencelock.Locker
	name    string
	cfg     Config // with its defaults
	invalid error  // what is wrong with all that; nil for nothing

	// Of a due; nil otherwise.
	after  func(tick time.Time) time.Time // the tick after a tick
	turnOf func(tick time.Time) context.Context
}

// New returns a job of that name, which is also the name of the lock that its runs
// hold, and has at most 480 bytes. It does no I/O; cfg may be nil. The TTL of locks is how long an instance that
// vanished blocks later runs. Its minimum hold is how much time passes between the beginnings of two runs at
// least, whatever their ticks: a tick that comes too early overlaps; with OverlapAllow a minimum hold is
// fencelock.ErrInvalid. Its note gives way to the tick, and its Shared, Limit and Weight to what Config.Overlap says.
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

	longestName = 480 // in bytes; those of claims are longer

	longRing = 28 * 24 * time.Hour // after which the names of claims come again
)

// early is how long before its time a tick counts as due: timers run on another
// clock than the one that says what time it is, and may fire a little early.
const early = 50 * time.Millisecond

// check is an ErrInvalid if the job cannot be run.
func (j *Job) check() error {
	switch {
	case j.locks == nil || j.name == "":
		return fmt.Errorf("%w: a job needs a Locker and a name", fencelock.ErrInvalid)
	case driver.CheckName(j.name) != nil:
		return driver.CheckName(j.name)
	case len(j.name) > longestName:
		return fmt.Errorf("%w: the name of the job has %d bytes, more than %d", fencelock.ErrInvalid, len(j.name), longestName)
	case j.cfg.Skew < 0 || j.cfg.Late < 0 || j.cfg.CatchUp < 0:
		return fmt.Errorf("%w: skew %v, late %v and catch-up %d must not be negative",
			fencelock.ErrInvalid, j.cfg.Skew, j.cfg.Late, j.cfg.CatchUp)
	case j.cfg.Overlap == OverlapAllow && j.locks.Options().MinHold > 0:
		return fmt.Errorf("%w: OverlapAllow lets runs of %q share a lock, and a minimum hold needs an exclusive one; leave out MinHold, or use OverlapSkip",
			fencelock.ErrInvalid, j.name)
	case max(j.cfg.Skew, j.cfg.Late) > longRing/2 || j.cfg.Skew+j.cfg.Late > longRing/2-early: // the sum may overflow
		return fmt.Errorf("%w: skew %v and late %v are more than %v together", fencelock.ErrInvalid, j.cfg.Skew, j.cfg.Late, longRing/2)
	}
	return nil
}

// book returns the place of the job's record. It is fencelock.ErrUnsupported if the engine
// keeps no records, and an ErrInvalid if the job cannot be run.
func (j *Job) book() (book, error) {
	if j.invalid != nil {
		return book{}, j.invalid
	}
	records, err := j.locks.Records()
	return book{records, j.name, j.cfg.Skew + j.cfg.Late}, err
}

// skipped makes the error of a tick that somebody else's lock keeps from running.
func (j *Job) skipped(tick time.Time, why Reason, err error) error {
	held, _ := errors.AsType[*fencelock.HeldError](err)
	return &SkippedError{Job: j.name, Tick: tick, Reason: why, Held: held}
}

// report tells the hook and the logger how a tick ended, whose run has begun if it has a time for that.
func (j *Job) report(run Run, err error) {
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
