package cron

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencelock/fencelock"
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
	// them. Ticks before a job was first deployed count as well. 1 makes up for the
	// last one. 0, the default, makes up for none.
	CatchUp int

	// Overlap is what to do with a tick that comes due during an earlier run.
	// The default is OverlapSkip.
	Overlap Overlap

	// MinHold is how much time passes between the beginnings of two runs at
	// least, whatever their ticks; a tick that comes too early overlaps. 0, the
	// default, is no such time.
	MinHold time.Duration

	// AtMost is how long a run may take: its context then ends with the cause
	// ErrAtMost. The lock is kept until the run has returned all the same. 0, the
	// default, is no bound.
	AtMost time.Duration

	// OnTick is told how each tick ended on this instance, skipped ones included.
	// It must not block. nil, the default, is no call.
	OnTick func(Outcome)

	// Logger gets failures as warnings, skipped ticks as information, and runs at
	// debug level. nil, the default, is silent.
	Logger *slog.Logger
}

// Job is work that is done once for each tick of a schedule, by one of many
// instances. Its methods may be called from many goroutines at once.
type Job struct {
	Config // may be changed before the first use

	locks *fencelock.Locker
	name  string
	turn  *turn // of Run; nil otherwise
}

// New returns a job of that name, which is also the name of the lock that its runs
// hold. It does no I/O; cfg may be nil. The TTL of locks is how long an instance that
// vanished blocks later runs; its note gives way to the tick. A Locker with
// Options.Shared or a Limit is fencelock.ErrInvalid at the first use.
func New(locks *fencelock.Locker, name string, cfg *Config) *Job {
	j := &Job{locks: locks, name: name}
	if cfg != nil {
		j.Config = *cfg
	}
	return j
}

// Name returns the name of the job.
func (j Job) Name() string { return j.name }

// Overlap says what happens to a tick that comes due during an earlier run. With
// OverlapLast, the tick that came due last on an instance waits there, no longer than
// Config.Late, and those before it are skipped; callers of Tick see to that themselves.
type Overlap int

// The ways to deal with an overlap.
const (
	OverlapSkip  Overlap = iota // the tick is not run, by anybody
	OverlapLast                 // the tick runs when the earlier run is over, unless it is too late by then
	OverlapAllow                // both run; their locks are shared
)

const (
	defaultSkew = time.Minute
	defaultLate = time.Minute
	shortRing   = time.Hour // after which the names of claims come again
	longRing    = 28 * 24 * time.Hour
)

// withDefaults returns j with its zero fields filled in, or an ErrInvalid.
func (j Job) withDefaults() (Job, error) {
	j.Skew = cmp.Or(j.Skew, defaultSkew)
	j.Late = cmp.Or(j.Late, defaultLate)
	if j.Logger == nil {
		j.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case j.locks == nil || j.name == "":
		return j, fmt.Errorf("%w: a job needs a Locker and a name", fencelock.ErrInvalid)
	case j.locks.Options().Shared || j.locks.Options().Limit > 0:
		return j, fmt.Errorf("%w: a Locker with Options.Shared would let several hosts run one tick of %q", fencelock.ErrInvalid, j.name)
	case j.Skew < 0 || j.Late < 0 || j.MinHold < 0 || j.AtMost < 0 || j.CatchUp < 0:
		return j, fmt.Errorf("%w: skew %v, late %v, at least %v, at most %v and catch-up %d must not be negative",
			fencelock.ErrInvalid, j.Skew, j.Late, j.MinHold, j.AtMost, j.CatchUp)
	case j.Skew+j.Late > longRing/2-early:
		return j, fmt.Errorf("%w: skew %v and late %v are more than %v together", fencelock.ErrInvalid, j.Skew, j.Late, longRing/2)
	}
	return j, nil
}

// keep is how long a claim is kept: from when the first instance asks for a tick
// until the last one does, whose clock may be Skew behind and who may be Late.
func (j Job) keep() time.Duration { return early + j.Skew + j.Late }

// claimName is the name of the lock that stands for one tick. A name comes again
// only when no instance asks for its last tick any more and its claim is over,
// which is within twice the time that claims are kept.
func (j Job) claimName(tick time.Time) string {
	ring := shortRing
	if 2*j.keep() > ring {
		ring = longRing
	}
	return j.name + "@" + tick.Sub(tick.Truncate(ring)).String()
}
