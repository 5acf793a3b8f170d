package fencelock

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Config holds the settings of a Locker. Lockers that [Locker.With] returns share them. Settings
// that may differ from lock to lock are [Options]. The zero Config is ready to use. A duration of
// more than ten years, here or in Options, is ErrInvalid.
type Config struct {
	// Margin is how long before the end of the TTL the holder treats the lock as lost. It allows
	// for clock drift and late timers. 0 means the default: 2 % of the TTL plus 10 ms.
	Margin time.Duration

	// ReleaseTimeout bounds the release of a lock, which does not depend on the caller's context.
	// If the engine does not answer in time, the lock is free when its lease expires. 0 means the
	// default, 5 s.
	ReleaseTimeout time.Duration

	// Tracer receives acquisitions, holds, renewals and releases. nil, the default, means no
	// tracing.
	Tracer *Tracer

	// Logger receives what a call cannot return: failed renewals and releases, and lost locks. At
	// debug level it also receives every acquisition. nil, the default, means no logging.
	Logger *slog.Logger
}

// Options are the settings of single acquisitions; see [Locker.With]. The defaults are those of a
// Locker that [New] returns.
type Options struct {
	// TTL is how long after the last renewal the lease expires. It is also how long a holder that
	// crashed blocks others. It need not cover the work: locks are renewed every third of the TTL.
	// Engines have a minimum (Traits.MinTTL of package driver), and some have a maximum (MaxTTL). Locks
	// on files do not expire: they end with their process. 0 means the default, 30 s.
	TTL time.Duration

	// Grace is how long before the deadline the context of the lock ends, so that the work has time
	// to stop. 0, the default, means that it ends at the deadline.
	Grace time.Duration

	// Shared admits other shared holders and excludes exclusive ones. The default is exclusive.
	Shared bool

	// Limit, with Shared, is the maximum number of holders: a semaphore. All users of the name must
	// ask for the same limit, otherwise they get ErrInvalid. The maximum is 1,000,000,000. 0, the
	// default, means no limit. Package semaphore builds on it.
	Limit int

	// Weight, with Limit, is how many units of the limit one holder takes. 0, the default, means 1.
	Weight int

	// Wait bounds how long Do and Acquire wait for the lock. 0, the default, means as long as the
	// context allows.
	Wait time.Duration

	// MinHold keeps the name unavailable for at least this long after the acquisition, even if the
	// lock is released or the holder dies earlier. It needs an exclusive lock: with Shared it is
	// ErrInvalid. 0, the default, means no minimum.
	MinHold time.Duration

	// MaxHold ends a lock that is held for longer: its context ends with a cause that is ErrMaxHold.
	// The lock is renewed for the Grace after that, so that work can stop before another process is
	// granted the lock, and is then released. A function that ignores its context then runs beside
	// the next holder; a guard refuses its writes (package fence). On an engine without leases,
	// such as files, the lock is kept until it is released. The time for which the machine is
	// suspended does not count. 0, the default, means no maximum.
	MaxHold time.Duration

	// Note is a free text that is published with the lock, such as a job's number. Lists of holders
	// and waiters show it. Empty, the default, means no note.
	Note string

	// Kind says in metrics, traces and lists what the lock is for; see the Kind constants. Recipes
	// set it, so that a leader that serves for weeks does not look like a job that hangs. Use few
	// values: each is a time series. Empty, the default, means KindLock.
	Kind string

	// OnWait is called when an acquisition joins the queue, with its place at that time. It must
	// not block. nil, the default, means no call.
	OnWait func(WaitInfo)
}

const (
	defaultTTL            = 30 * time.Second
	defaultReleaseTimeout = 5 * time.Second
	marginShare           = 50 // the default margin is 1/50 of the TTL plus lateness
	lateness              = 10 * time.Millisecond
)

// over returns o with its zero fields taken from base.
func (o Options) over(base Options) Options {
	o.Shared = o.Shared || base.Shared
	o.Limit, o.Weight = cmp.Or(o.Limit, base.Limit), cmp.Or(o.Weight, base.Weight)
	o.TTL, o.Grace = cmp.Or(o.TTL, base.TTL), cmp.Or(o.Grace, base.Grace)
	o.Wait, o.MinHold = cmp.Or(o.Wait, base.Wait), cmp.Or(o.MinHold, base.MinHold)
	o.MaxHold = cmp.Or(o.MaxHold, base.MaxHold)
	o.Note, o.Kind = cmp.Or(o.Note, base.Note), cmp.Or(o.Kind, base.Kind)
	if o.OnWait == nil {
		o.OnWait = base.OnWait
	}
	return o
}

// margin returns the configured margin, or the default for ttl.
func (c *Config) margin(ttl time.Duration) time.Duration {
	return cmp.Or(c.Margin, ttl/marginShare+lateness)
}

// check returns an ErrInvalid for negative, contradictory or too long durations.
func (c *Config) check(o Options, leased bool) error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"TTL", o.TTL}, {"wait limit", o.Wait}, {"grace", o.Grace}, {"minimum hold", o.MinHold}, {maximumHold, o.MaxHold},
		{"margin", c.Margin}, {"release timeout", c.ReleaseTimeout},
	} {
		if err := checkDuration(d.name, d.value); err != nil {
			return err
		}
	}
	if margin := c.margin(o.TTL); leased && margin+o.Grace > o.TTL-o.TTL*5/12 {
		return fmt.Errorf("%w: margin %v and grace %v leave too little of the TTL %v to renew it in time: set a longer TTL or a shorter grace",
			ErrInvalid, margin, o.Grace, o.TTL)
	}
	return nil
}

// maximumHold is Options.MaxHold in error texts.
const maximumHold = "maximum hold"

// checkDuration returns an ErrInvalid for a negative or too long duration.
func checkDuration(name string, d time.Duration) error {
	switch {
	case d < 0:
		return fmt.Errorf("%w: the %s %v is negative", ErrInvalid, name, d)
	case d > driver.MaxDuration:
		return fmt.Errorf("%w: the %s %v is longer than ten years", ErrInvalid, name, d)
	}
	return nil
}
