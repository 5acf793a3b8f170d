//go:build unix

package chaos

import (
	"context"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/redislock"
)

// A kind of engine: its servers, how to reach them, and what may happen to them.
type kind struct {
	start  func(t hosttest.TB, ttl time.Duration) servers
	open   func(known) (driver.Engine, error)
	safe   []string      // faults after which the engine promises one holder
	unsafe []string      // faults of which its page says that they are unsafe
	rest   time.Duration // between two faults of servers, at least, so that they serve in between
	extra  extra         // how much longer than its TTL a name may stay closed

	overlaps bool // its page says that the safe faults too may lead to two holders: they are counted
}

// extra is a time for a TTL and a number of workers. nil means none.
type extra func(ttl time.Duration, workers int) time.Duration

func oneTTL(ttl time.Duration, _ int) time.Duration { return ttl }

var kinds map[string]kind

func init() { // the workers' functions refer to it
	kinds = map[string]kind{
		"files":               filesKind(),
		"redis":               singleKind(redislock.Config{}, "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-min-size", "8mb"),
		"redis-quarantine":    singleKind(redislock.Config{Quarantine: true}),
		"redlock":             redlockKind(),
		"sentinel":            sentinelKind(),
		"sentinel-quarantine": carefulSentinelKind(),
		"cluster":             clusterKind(),
		"postgres":            postgresKind(),
	}
}

// redisFaults are safe for Redis.
func redisFaults() []string {
	return append([]string{storm, pause, crash, back, busy, twice}, network...)
}

func filesKind() kind {
	return kind{
		start: func(t hosttest.TB, _ time.Duration) servers {
			return servers{known: []string{hosttest.Dir(t, "fencelock-chaos-files-")}}
		},
		open: func(k known) (driver.Engine, error) { return filelock.New(k.Addrs[0], nil), nil },
		safe: processes,
	}
}

func singleKind(cfg redislock.Config, settings ...string) kind {
	k := kind{safe: redisFaults(), unsafe: []string{clock, flush}}
	if cfg.Quarantine {
		k.safe, k.unsafe, k.extra = append(k.safe, flush), []string{clock}, oneTTL
	}
	k.open = func(k known) (driver.Engine, error) { return openRedis(k.single(k.Addrs[0]), k.TTL, cfg) }
	k.start = func(t hosttest.TB, ttl time.Duration) servers {
		s := startRedis(t, 1, settings...)
		if cfg.Quarantine {
			k.initialise(t, known{Addrs: s.addrs, TTL: ttl})
		}
		return s
	}
	return k
}

func redlockKind() kind {
	k := kind{safe: append(redisFaults(), flush), unsafe: []string{clock}, open: openRedlock, extra: oneTTL}
	k.start = func(t hosttest.TB, ttl time.Duration) servers {
		s := startRedis(t, 3)
		k.initialise(t, known{Addrs: s.addrs, TTL: ttl})
		return s
	}
	return k
}

func sentinelKind() kind {
	return kind{
		start:    func(t hosttest.TB, _ time.Duration) servers { return startSentinel(t) },
		open:     func(k known) (driver.Engine, error) { return openSentinel(k, redislock.Config{}) },
		safe:     append([]string{promote, promote, split, split, storm, pause, crash, twice}, network...),
		rest:     3 * time.Second,
		overlaps: true,
	}
}

func carefulSentinelKind() kind {
	k := sentinelKind()
	k.open = func(k known) (driver.Engine, error) {
		return openSentinel(k, redislock.Config{Quarantine: true, ReplicaLag: replicaLag})
	}
	k.start = func(t hosttest.TB, ttl time.Duration) servers {
		s := startSentinel(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", strconv.Itoa(int(replicaLag.Seconds())))
		k.initialise(t, known{Addrs: s.known, TTL: ttl})
		return s
	}
	k.rest, k.overlaps = 7*time.Second, false
	k.extra = func(ttl time.Duration, _ int) time.Duration { return ttl + replicaLag + 2*time.Second } // the quarantine
	return k
}

func clusterKind() kind {
	return kind{
		start: func(t hosttest.TB, _ time.Duration) servers { return startCluster(t) },
		open:  openCluster,
		safe:  append([]string{move, move, move, storm, pause, crash, busy, twice}, network...),
		extra: func(ttl time.Duration, workers int) time.Duration { return time.Duration(workers) * ttl }, // a dead process that waited costs a grant
	}
}

func postgresKind() kind {
	return kind{
		start: func(t hosttest.TB, _ time.Duration) servers { return startPostgres(t) },
		open:  openPostgres,
		safe:  append([]string{storm, pause, crash, clock, still, full}, network...),
	}
}

// initialise declares servers new.
func (k kind) initialise(t hosttest.TB, servers known) {
	t.Helper()
	e, err := k.open(servers)
	if err == nil {
		err = e.(interface{ Init(context.Context) error }).Init(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}
