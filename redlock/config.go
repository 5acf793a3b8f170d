package redlock

import (
	"cmp"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Config tunes an engine. The zero value is useful.
type Config struct {
	// Prefix begins every key, so that several deployments can share servers.
	// Clients with different prefixes do not see each other. The default is none.
	Prefix string

	// Nodes names the masters, in any order, the same in every client of a
	// deployment (addresses will do). A node refuses a client that works with
	// another set. Empty, the default, compares only how many there are.
	Nodes []string

	// MaxTTL is the longest TTL, and unless NoQuarantine is set the longest minimum
	// hold, that a request may ask for, one number for the whole deployment: a node
	// that may have forgotten its locks does not vote for so long. 0 means 30 s.
	MaxTTL time.Duration

	// NoQuarantine lets nodes vote at once after a restart, a failover or a
	// FLUSHALL. Two holders are possible then. The default is false.
	NoQuarantine bool

	// AllowEviction accepts nodes that evict keys when their memory is full, and
	// locks with them. Minimum holds are refused then. The default refuses such nodes.
	AllowEviction bool

	// NodeLimit bounds a request to one node; 0 means a tenth of the TTL, at most
	// 1 s, and for a short TTL up to a quarter of it. Answers are not waited for
	// once a majority has decided, so it matters only while a majority is slow. A
	// node that exceeds it is left out until it answers again.
	NodeLimit time.Duration

	// RetryTimeout is how long an acquire that no majority has answered yet keeps
	// trying before it returns driver.ErrUnavailable; 0 means 4 s. A request that
	// waits for its turn rides out any failure until its context ends.
	RetryTimeout time.Duration

	// Retention is for how long after its last use the last fencing token of a
	// name is kept; 0 means 7 days. Later the nodes' clocks alone make tokens
	// grow.
	Retention time.Duration

	// MarkerLife is how long a node that nobody uses stays known: one whose marker
	// has expired counts as new and does not vote for MaxTTL. Every grant, renewal
	// and listing keeps it, with a write a day. Make it longer than the pause
	// between two uses. 0 means 90 days.
	MarkerLife time.Duration
}

func (cfg *Config) withDefaults() Config {
	var full Config
	if cfg != nil {
		full = *cfg
	}
	full.MaxTTL = cmp.Or(max(full.MaxTTL, 0), 30*time.Second)
	full.RetryTimeout = cmp.Or(max(full.RetryTimeout, 0), 4*time.Second)
	full.Retention = cmp.Or(max(full.Retention, 0), 7*24*time.Hour)
	full.MarkerLife = cmp.Or(max(full.MarkerLife, 0), 90*24*time.Hour)
	return full
}

// traits are what a majority of masters promises.
func (cfg *Config) traits() driver.Traits {
	t := driver.Traits{Engine: "redlock", Leased: true, MaxTTL: cfg.MaxTTL}
	switch {
	case cfg.AllowEviction:
		t.MaxMinHold = -1
	case !cfg.NoQuarantine:
		t.MaxMinHold = cfg.MaxTTL
	}
	return t
}

// limit bounds one request to one node for a lock of this TTL.
func (cfg *Config) limit(ttl time.Duration) time.Duration {
	if cfg.NodeLimit > 0 {
		return cfg.NodeLimit
	}
	return min(max(ttl/10, min(ttl/4, 250*time.Millisecond)), time.Second)
}

// endLimit bounds what takes back the doings of such a request, which it may have to
// wait for.
func (cfg *Config) endLimit(ttl time.Duration) time.Duration {
	return max(callLimit, cfg.limit(ttl)+time.Second)
}

// channel is where nodes tell what becomes free, and what was broken.
func (cfg *Config) channel() string { return cfg.Prefix + "fencelock:redlock" }
