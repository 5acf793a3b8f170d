package pglock

import (
	"cmp"
	"time"
)

// Config adjusts an engine. A nil Config and a zero Config mean the defaults.
type Config struct {
	// MaxTTL is the longest TTL of the deployment: a request for more is
	// driver.ErrInvalid, and after a crash, a restart or a promotion the server
	// grants nothing for so long, since it forgot who holds. It is stored in the
	// database, where the largest value anybody used wins. Zero means the
	// default, 30 s.
	MaxTTL time.Duration

	// MaxWaiters is how many connections the engine opens for requests that
	// wait, one for each contended name; one that was granted keeps its
	// connection until it is released. Beyond them requests wait by trying
	// again, without a place in the server's queue. Zero means the default, 16.
	MaxWaiters int

	// BreakWait is how long Break waits for holders to let go. A holder that can
	// be reached lets go within milliseconds. Zero means the default, 2 s.
	BreakWait time.Duration

	// ForceBreak makes Break end the connections of holders that have not let go
	// after BreakWait. That takes every other lock on those connections away as
	// well; Break logs nothing, so list what a holder has beforehand. False, the
	// default, makes Break return driver.ErrUnavailable then.
	ForceBreak bool

	// Timeout is how long a connection may be silent while the server owes it an
	// answer. Then it is closed, and requests go on by another one. A connection
	// that has locks is kept until their leases are over, since it may recover:
	// acquires that it has not answered are made again on another one, and new
	// requests use that one. Renewals and releases of its own locks wait for it.
	// Zero means the default, 5 s.
	Timeout time.Duration

	// FailoverTime is how long a failover may take. Once a server has served the
	// engine, refusals of every host of the DSN (a standby, a login that is refused,
	// a server that is read-only) are driver.ErrUnavailable for so long, and
	// driver.ErrConfig afterwards; before a server has served they are
	// driver.ErrConfig at once. Zero means the default, 5 min.
	FailoverTime time.Duration

	// AllowPooler accepts a connection pooler between engine and server, which
	// must be in session mode: a pooler that moves a client from one server
	// connection to another takes its locks away or gives them to others. False,
	// the default, refuses a pooler.
	AllowPooler bool
}

// withDefaults returns a copy of cfg, which may be nil, without zero durations.
func (cfg *Config) withDefaults() Config {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.MaxTTL = cmp.Or(c.MaxTTL, 30*time.Second)
	c.MaxWaiters = cmp.Or(max(c.MaxWaiters, 0), 16)
	c.BreakWait = cmp.Or(c.BreakWait, 2*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.FailoverTime = cmp.Or(c.FailoverTime, 5*time.Minute)
	return c
}
