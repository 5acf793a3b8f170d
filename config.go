package fencelock

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Config is what a Locker does for all its locks, and those that [Locker.With] makes of it
// have too; what may differ from lock to lock are Options. The zero Config is useful. Times
// of more than ten years are ErrInvalid; so are those of Options.
type Config struct {
	// Margin is how long before the end of the TTL a hold ends, for clocks that
	// drift and timers that fire late. 0 means the default, 2 % of the TTL and
	// 10 ms more.
	Margin time.Duration

	// ReleaseTimeout bounds a release, which runs on a context of its own. An
	// engine that stays silent for longer frees the name when the lease ends.
	// 0 means the default, 5 s.
	ReleaseTimeout time.Duration

	// Tracer is told about acquisitions, holds, renewals and releases. nil, the
	// default, tells nobody.
	Tracer *Tracer

	// Logger gets what cannot be returned, failed renewals and lost locks, and
	// at debug level every attempt. nil, the default, is silent.
	Logger *slog.Logger
}

// Options are what one use of a Locker asks for; see [Locker.With]. The defaults are
// those of a Locker that [New] returns.
type Options struct {
	// TTL is how long after the last renewal the engine lets others in, which
	// is how long a holder that vanished blocks them. Locks are renewed at a
	// third of it. At least 100 ms; 0 means the default, 30 s.
	TTL time.Duration

	// Grace is how long before the deadline a lock's context ends, so that work
	// can stop in time. 0, the default, means at the deadline.
	Grace time.Duration

	// Shared lets other shared holders in and keeps exclusive ones out. The
	// default is exclusive.
	Shared bool

	// Limit, with Shared, is how many holders there may be at once: a
	// semaphore. All users of the name must ask for the same limit, or get
	// ErrInvalid; so is one above 1,000,000,000. 0, the default, is no limit. Package semaphore is made of it.
	Limit int

	// Weight, with Limit, is how much of the limit one holder takes. 0, the
	// default, means 1.
	Weight int

	// Wait bounds how long Do and Acquire wait for their turn. 0, the default,
	// is as long as the context allows.
	Wait time.Duration

	// MinHold keeps everybody from the name until it is over, counted from the
	// acquisition, whether the lock is released or the holder dies. With Shared it
	// is ErrInvalid. 0, the default, is no such time.
	MinHold time.Duration

	// Note is shown to people who list the holders, such as a job's number.
	// Empty, the default, shows nothing.
	Note string

	// OnWait is called when an acquisition joins the queue, with its place by then. It
	// must not block. nil, the default, is no call.
	OnWait func(WaitInfo)
}

const (
	defaultTTL            = 30 * time.Second
	defaultReleaseTimeout = 5 * time.Second
	driftPart             = 50 // the margin's share of the TTL is 1/50
	lateness              = 10 * time.Millisecond
)

// over returns o with what base has in its zero fields.
func (o Options) over(base Options) Options {
	o.Shared = o.Shared || base.Shared
	o.Limit, o.Weight = cmp.Or(o.Limit, base.Limit), cmp.Or(o.Weight, base.Weight)
	o.TTL, o.Grace = cmp.Or(o.TTL, base.TTL), cmp.Or(o.Grace, base.Grace)
	o.Wait, o.MinHold = cmp.Or(o.Wait, base.Wait), cmp.Or(o.MinHold, base.MinHold)
	o.Note = cmp.Or(o.Note, base.Note)
	if o.OnWait == nil {
		o.OnWait = base.OnWait
	}
	return o
}

// margin returns the configured margin, or the default one for ttl.
func (c *Config) margin(ttl time.Duration) time.Duration {
	return cmp.Or(c.Margin, ttl/driftPart+lateness)
}

// check returns an ErrInvalid for times that contradict one another, or that are so
// long that sums of them overflow.
func (c *Config) check(o Options, leased bool) error {
	for _, d := range []time.Duration{o.TTL, o.Wait, o.Grace, o.MinHold, c.Margin, c.ReleaseTimeout} {
		if d > driver.MaxDuration {
			return fmt.Errorf("%w: %v is longer than ten years", ErrInvalid, d)
		}
	}
	switch margin := c.margin(o.TTL); {
	case o.Wait < 0:
		return fmt.Errorf("%w: the wait limit %v is negative", ErrInvalid, o.Wait)
	case margin < 0 || o.Grace < 0 || c.ReleaseTimeout < 0:
		return fmt.Errorf("%w: margin %v, grace %v and release timeout %v must not be negative",
			ErrInvalid, margin, o.Grace, c.ReleaseTimeout)
	case o.TTL > 0 && leased && margin+o.Grace > o.TTL-o.TTL*5/12:
		return fmt.Errorf("%w: margin %v and grace %v leave too little of the TTL %v to renew it at a third",
			ErrInvalid, margin, o.Grace, o.TTL)
	}
	return nil
}
