package redislock

import (
	"cmp"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Config tunes an engine. The zero value is useful.
type Config struct {
	// Prefix begins every key and every channel, so that several deployments can share
	// a server: clients with different prefixes do not see each other. The key of a
	// name is <prefix>lock:<name>. The default is empty. A prefix that begins with
	// lock:, record: or fencelock:, or has a brace but no hash tag, is driver.ErrConfig
	// in every call. Of two prefixes on one server none may be the other one followed
	// by lock:, record: or fencelock:.
	Prefix string

	// MinReplicas is how many replicas must have acknowledged an acquisition
	// before it is granted (WAIT). It narrows the hole that a failover leaves,
	// and never closes it. 0, the default, waits for none.
	MinReplicas int

	// Quarantine makes a server that may have forgotten who holds what (after a
	// restart, a failover or a FLUSHALL) grant nothing until MaxTTL has passed.
	// Every client of a deployment must agree. It costs an INFO in each acquire,
	// and the first use of a new server waits too, unless Init was called. It is
	// not available on a Cluster. The default is false.
	Quarantine bool

	// MaxTTL is the longest TTL, and the longest minimum hold, that a request may
	// ask for with Quarantine, where every client must agree on it; 0 means 30 s.
	// It is ignored without.
	MaxTTL time.Duration

	// ReplicaLag is the most that min-replicas-max-lag says on any of the masters,
	// with Quarantine and replicas: a master that was cut off takes renewals for so
	// long, so the quarantine lasts MaxTTL and ReplicaLag and 2 s more. Every client
	// must agree on it. 0, the default, is for a server without replicas; with
	// Quarantine one that has some is refused then (driver.ErrConfig), as is one
	// whose min-replicas-to-write is 0. It is ignored without Quarantine.
	ReplicaLag time.Duration

	// MarkerLife is for how long a server without locks is remembered, with
	// Quarantine: a grant or a listing after a longer pause finds what looks like a
	// new server. 0 means 90 days. It is ignored without Quarantine.
	MarkerLife time.Duration

	// AllowEviction accepts a server that evicts keys when its memory is full,
	// and locks with them. The default refuses it. A minimum hold is
	// driver.ErrInvalid then: what keeps the name closed would be evicted as well.
	AllowEviction bool

	// RetryTimeout is how long an acquire that has not reached the server yet keeps
	// trying before it returns driver.ErrUnavailable; 0 means 4 s. A request
	// that waits in the queue rides out any failure until its context ends,
	// unless the server refuses its questions (it lost a right, say) for so long.
	RetryTimeout time.Duration

	// Retention is for how long after its last use the last fencing token of a
	// name is kept; 0 means 7 days. Later the server's clock alone makes tokens
	// grow.
	Retention time.Duration
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

// cutOffSlack is how long a master that was cut off may take renewals beyond its
// min-replicas-max-lag: it looks at its replicas once a second.
const cutOffSlack = 2 * time.Second

// quarantine is for how long nothing is granted after the server may have forgotten
// locks: as long as a lease of before can last.
func (cfg *Config) quarantine() time.Duration {
	if cfg.ReplicaLag <= 0 {
		return cfg.MaxTTL
	}
	return cfg.MaxTTL + cfg.ReplicaLag + cutOffSlack
}

// traits are what one Redis promises.
func (cfg *Config) traits() driver.Traits {
	t := driver.Traits{Engine: "redis", Leased: true, Order: driver.OrderAll, Limits: true, Rates: true}
	if cfg.Quarantine {
		t.MaxTTL, t.MaxMinHold = cfg.MaxTTL, cfg.MaxTTL
	}
	if cfg.AllowEviction {
		t.MaxMinHold = -1
	}
	return t
}
