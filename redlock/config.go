package redlock

import (
	"cmp"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Config configures an engine. The zero value has usable defaults.
type Config struct {
	// Prefix is prepended to the key of each lock and to the channel, so that several
	// deployments can share servers. The keys beside a lock have the key of the lock, with the
	// prefix, in a hash tag: an ACL needs both patterns; see docs/engines/redlock.md. Clients with
	// different prefixes do not see each other's locks. The default is empty.
	Prefix string

	// Nodes are the names of the masters, such as their addresses, in any order. All clients of a
	// deployment must use the same names: a node refuses a client that works with another set. With
	// the default, nil, only the number of nodes is compared.
	Nodes []string

	// MaxTTL is the longest TTL that a request may have and, unless NoQuarantine is set, the
	// longest minimum hold. A node that may have lost its locks does not vote for this time. All
	// clients must use the same value. 0 means 30 s.
	MaxTTL time.Duration

	// NoQuarantine lets nodes vote immediately after a restart, a failover or a FLUSHALL. Two
	// holders are possible then. The default is false.
	NoQuarantine bool

	// AllowEviction accepts nodes that evict keys, locks included, when their memory is full.
	// Minimum holds are driver.ErrInvalid then. By default such nodes are refused.
	AllowEviction bool

	// NodeLimit is the time limit of a request to one node. 0 means a tenth of the TTL, but at most
	// 1 s and, for a short TTL, up to a quarter of it (at most 250 ms). Requests return once a
	// majority has decided, so the limit matters only while a majority is slow. A node that exceeds
	// it is left out until it answers again.
	NodeLimit time.Duration

	// RetryTimeout is how long an acquire retries before it returns driver.ErrUnavailable, if no
	// majority has answered it. 0 means 4 s. A waiting request that a majority has answered once
	// waits through failures until its context ends.
	RetryTimeout time.Duration

	// Retention is how long the last fencing token of a name is kept after its last use. 0 means 7
	// days. After that, only the nodes' clocks make tokens increase.
	Retention time.Duration

	// MarkerLife is how long an unused node keeps the key that identifies it. Without this key a
	// node counts as new and does not vote for MaxTTL. Grants, renewals and listings extend its
	// life, with one write a day. Set MarkerLife to more than the longest pause between two uses. 0
	// means 90 days.
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

// traits returns the capabilities of an engine with this configuration.
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

// limit returns the time limit of one request to one node for a lock with this TTL.
func (cfg *Config) limit(ttl time.Duration) time.Duration {
	if cfg.NodeLimit > 0 {
		return cfg.NodeLimit
	}
	return min(max(ttl/10, min(ttl/4, 250*time.Millisecond)), time.Second)
}

// endLimit returns the time limit of a release, which may have to wait for the request that it
// undoes.
func (cfg *Config) endLimit(ttl time.Duration) time.Duration {
	return max(callLimit, cfg.limit(ttl)+time.Second)
}

// channel returns the channel on which nodes publish releases and breaks.
func (cfg *Config) channel() string { return cfg.Prefix + "fencelock:redlock" }
