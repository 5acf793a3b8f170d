package redislock

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Config configures an engine. The zero value has usable defaults.
type Config struct {
	// Prefix is prepended to every key and channel, so that several deployments can share a server.
	// Clients with different prefixes do not see each other's locks. The key of a name is
	// <prefix>lock:<name>. The default is empty.
	//
	// Every call returns driver.ErrConfig if the prefix begins with lock:, record: or fencelock:,
	// or if it contains a brace but no hash tag. If two prefixes share a server, neither may be the
	// other followed by lock:, record: or fencelock:.
	Prefix string

	// MinReplicas is the number of replicas that must acknowledge an acquisition before it is
	// granted (WAIT). It makes it less likely that a failover loses a lock, but cannot rule it out.
	// The default, 0, waits for none.
	MinReplicas int

	// Quarantine makes a server that may have lost its locks (after a restart, a failover or a
	// FLUSHALL) grant nothing until every earlier lease has expired, which takes MaxTTL. All
	// clients of a deployment must use the same setting. Each acquire then runs an INFO, and the
	// first use of a new server waits too, unless Init was called. On a Cluster acquires return
	// driver.ErrUnsupported. The default is false.
	Quarantine bool

	// MaxTTL is the longest TTL, and the longest minimum hold, that a request may have with
	// Quarantine. All clients must use the same value. 0 means 30 s. It is ignored without
	// Quarantine.
	MaxTTL time.Duration

	// ReplicaLag is the largest min-replicas-max-lag of any of the masters. It is used with
	// Quarantine on servers that have replicas: a master that is cut off from them accepts renewals
	// for that long, so the server grants nothing for MaxTTL + ReplicaLag + 2 s. All clients must
	// use the same value. The default, 0, is for a server without replicas.
	//
	// With Quarantine, acquires return driver.ErrConfig if the server has replicas and ReplicaLag
	// is less than its min-replicas-max-lag, or if its min-replicas-to-write is 0. ReplicaLag is
	// ignored without Quarantine.
	ReplicaLag time.Duration

	// MarkerLife is how long, with Quarantine, the key that identifies a known server is kept after
	// the last grant or listing. After a longer pause the server counts as new and Quarantine
	// applies again. 0 means 90 days. It is ignored without Quarantine.
	MarkerLife time.Duration

	// AllowEviction accepts a server that evicts keys, locks included, when its memory is full. By
	// default acquires return driver.ErrConfig on such a server. With AllowEviction a minimum hold
	// is driver.ErrInvalid, because the key that enforces it could be evicted too.
	AllowEviction bool

	// RetryTimeout is how long an acquire retries before it returns driver.ErrUnavailable, if it
	// has not reached the server. 0 means 4 s. A request that is already queued waits through
	// failures until its context ends, unless the server answers but refuses the client's commands
	// (after its user lost a permission, for example) for RetryTimeout.
	RetryTimeout time.Duration

	// Retention is how long the last fencing token of a name is kept after its last use. 0 means 7
	// days. After that, only the server's clock makes tokens increase.
	Retention time.Duration

	// Logger receives a warning, once per engine, if the server's user may not PUBLISH: waiters
	// then get a lock up to a second late. It receives one, once per acquisition, if a renewal finds
	// that the lease would have ended too early: another program renews with EXPIRE and does not
	// compare the owner. nil means no log.
	Logger *slog.Logger
}

func (cfg *Config) withDefaults() Config {
	var full Config
	if cfg != nil {
		full = *cfg
	}
	full.Logger = cmp.Or(full.Logger, slog.New(slog.DiscardHandler))
	full.MaxTTL = cmp.Or(max(full.MaxTTL, 0), 30*time.Second)
	full.RetryTimeout = cmp.Or(max(full.RetryTimeout, 0), 4*time.Second)
	full.Retention = cmp.Or(max(full.Retention, 0), 7*24*time.Hour)
	full.MarkerLife = cmp.Or(max(full.MarkerLife, 0), 90*24*time.Hour)
	return full
}

// cutOffSlack is how long beyond min-replicas-max-lag a master that is cut off may accept renewals:
// it checks its replicas once a second.
const cutOffSlack = 2 * time.Second

// quarantine is how long nothing is granted after the server may have lost its locks: the longest
// that an earlier lease can last.
func (cfg *Config) quarantine() time.Duration {
	if cfg.ReplicaLag <= 0 {
		return cfg.MaxTTL
	}
	return cfg.MaxTTL + cfg.ReplicaLag + cutOffSlack
}

// traits returns the capabilities of an engine with this configuration.
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
