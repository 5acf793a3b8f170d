package pglock

import (
	"cmp"
	"math"
	"time"
)

// Config configures an engine. The zero value, like a nil Config, means the defaults.
type Config struct {
	// MaxTTL is the longest TTL that a request may have; a longer one is driver.ErrInvalid. After a
	// crash, a restart or a promotion the server grants nothing for this time, because it has lost
	// its locks. The value is stored in the database: the largest one that any client used applies
	// to all. Zero means the default, 30 s. Above 2,147,483,647 ms (24.8 days) every request returns
	// driver.ErrConfig.
	MaxTTL time.Duration

	// MaxWaiters is how many connections the engine opens for requests that wait. Each contended
	// name needs one, and a request that was granted keeps its connection until it is released.
	// When all are in use, further requests poll instead, on the connection for uncontended locks.
	// Zero means the default, 16.
	MaxWaiters int

	// BreakWait is how long Break waits for the holders to release the lock. A reachable holder
	// releases it within milliseconds. Zero means the default, 2 s.
	BreakWait time.Duration

	// ForceBreak makes Break terminate the connections of holders that have not released the lock
	// after BreakWait. That also ends every other lock on those connections; NamesOnSameSession
	// lists them in advance. By default Break returns driver.ErrUnavailable instead.
	ForceBreak bool

	// Timeout is how long the server may take to answer before its connection counts as dead. The
	// connection is then closed, and requests continue on another one. If the server says nothing on
	// any connection, a call that does not wait ends with driver.ErrUnavailable after this time.
	//
	// A connection that has locks is kept until their leases expire, since it may recover.
	// Meanwhile acquires that it has not answered are repeated on another connection, and new
	// requests use that one. Renewals and releases of its own locks wait for it. Zero means the
	// default, 5 s.
	Timeout time.Duration

	// FailoverTime is how long a failover may take. If every host of the DSN refuses the engine (it
	// is a standby, it is read-only, or it refuses the login), requests return driver.ErrConfig. If
	// a server has served the engine before, they return driver.ErrUnavailable until FailoverTime
	// has passed. Zero means the default, 5 min.
	FailoverTime time.Duration

	// AllowPooler accepts a connection pooler between the engine and the server. The pooler must be
	// in session mode: one that moves a client to another server connection takes its locks away or
	// gives them to others. By default a pooler is refused.
	AllowPooler bool
}

// withDefaults returns a copy of cfg, which may be nil, with the defaults filled in.
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

// longestTimeout is the longest timeout that the server can be set to.
const longestTimeout = math.MaxInt32 * time.Millisecond

// check rejects values that the server cannot be set to.
func (cfg *Config) check() error {
	if cfg.MaxTTL > longestTimeout || cfg.Timeout > longestTimeout {
		return refuse("MaxTTL is %v and Timeout %v, and PostgreSQL has no timeouts above %v: use shorter ones", cfg.MaxTTL, cfg.Timeout, longestTimeout)
	}
	return nil
}
