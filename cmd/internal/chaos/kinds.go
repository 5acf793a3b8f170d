//go:build unix

package chaos

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// A kind of engine: its servers, how to reach them, and what may happen to them.
type kind struct {
	start  func(hosttest.TB) servers
	url    string        // with HOSTS for what clients know, and TTL for that of the locks
	fresh  bool          // its servers must be declared new
	safe   []string      // faults after which the engine promises one holder
	unsafe []string      // faults of which its page says that they are unsafe
	rest   time.Duration // between two faults of servers, at least, so that they serve in between
	extra  extra         // how much longer than its TTL a name may stay closed
	places time.Duration // how long waiters that have died in an earlier round may keep a name closed

	overlaps bool // its page says that the safe faults too may lead to two holders: they are counted
}

// extra is a time for a TTL and a number of workers. nil means none.
type extra func(ttl time.Duration, workers int) time.Duration

func oneTTL(ttl time.Duration, _ int) time.Duration { return ttl }

// recordsExtra is that of locks in records: the places of dead waiters, and clocks that were set.
func recordsExtra(ttl time.Duration, _ int) time.Duration { return 2*ttl + 12*time.Second }

var (
	redisFaults    = append([]string{storm, pause, crash, back, busy, twice}, network...)
	sentinelFaults = append([]string{promote, promote, split, split, storm, pause, crash, twice}, network...)

	// durable are the settings of a Redis that loses nothing in a crash.
	durable = []string{"--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-min-size", "8mb"}

	// careful are the settings of a master that stops when it is cut off.
	careful = []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", strconv.Itoa(int(replicaLag.Seconds()))}
)

var kinds = map[string]kind{
	"files": {start: startFiles, url: "file://HOSTS", safe: processes},
	"redis": {
		start: func(t hosttest.TB) servers { return startRedis(t, 1, durable...) },
		url:   "redis://HOSTS?timeout=TTL",
		safe:  redisFaults, unsafe: []string{clock, flush},
	},
	"redis-quarantine": {
		start: func(t hosttest.TB) servers { return startRedis(t, 1) },
		url:   "redis://HOSTS?timeout=TTL&quarantine=on&max-ttl=TTL",
		fresh: true, safe: append([]string{flush}, redisFaults...), unsafe: []string{clock}, extra: oneTTL,
	},
	"redlock": {
		start: func(t hosttest.TB) servers { return startRedis(t, 3) },
		url:   "redlock://HOSTS?timeout=TTL&max-ttl=TTL",
		fresh: true, safe: append([]string{flush}, redisFaults...), unsafe: []string{clock}, extra: oneTTL,
	},
	"sentinel": {
		start: func(t hosttest.TB) servers { return startSentinel(t) },
		url:   "redis+sentinel://HOSTS/fencelock?timeout=TTL",
		safe:  sentinelFaults, rest: 3 * time.Second, overlaps: true,
	},
	"sentinel-quarantine": {
		start: func(t hosttest.TB) servers { return startSentinel(t, careful...) },
		url:   fmt.Sprintf("redis+sentinel://HOSTS/fencelock?timeout=TTL&quarantine=on&max-ttl=TTL&replica-lag=%v", replicaLag),
		fresh: true, safe: sentinelFaults, rest: 7 * time.Second,
		extra: func(ttl time.Duration, _ int) time.Duration { return ttl + replicaLag + 2*time.Second }, // the quarantine
	},
	"cluster": {
		start: startCluster,
		url:   "redis+cluster://HOSTS?timeout=TTL",
		safe:  append([]string{move, move, move, storm, pause, crash, busy, twice}, network...),
		extra: func(ttl time.Duration, workers int) time.Duration { return time.Duration(workers) * ttl }, // a dead process that waited costs a grant
	},
	"mariadb": {
		start: startMariaDB,
		url:   "mariadb://root@HOSTS/test?timeout=TTL",
		safe:  append([]string{storm, pause, crash, clock, skew, skew}, network...),
		extra: recordsExtra,
	},
	"postgres": {
		start: startPostgres,
		url:   "postgres://postgres@HOSTS/postgres?sslmode=disable&connect_timeout=1&max-ttl=TTL",
		safe:  append([]string{storm, pause, crash, clock, still, full}, network...),
	},
}

// urlOf returns the URL of the engine on servers. Commands accept no bound of a TTL below a second.
func (k kind) urlOf(s servers, ttl time.Duration) string {
	hosts := s.hosts
	if hosts == nil {
		hosts = s.addrs
	}
	return strings.NewReplacer("HOSTS", strings.Join(hosts, ","), "TTL", max(ttl, time.Second).String()).Replace(k.url)
}

func startFiles(t hosttest.TB) servers {
	return servers{hosts: []string{hosttest.Dir(t, "fencelock-chaos-files-")}}
}
