package redisinspect

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/inspect"
)

// server checks the kind and version of the server. If several servers accept writes, each of them
// would grant the same lock. Forks of Redis may behave differently.
func (r Rules) server(s Server) driver.Finding {
	const check = "server"
	saw := product(s.Info) + ", " + s.Info["role"]
	switch {
	case s.Info["role"] == "slave":
		return inspect.Found(check, driver.Broken, fmt.Sprintf("%s of %s:%s", saw, s.Info["master_host"], s.Info["master_port"]), "a replica refuses every lock",
			"connect to the master; redis+sentinel://h1,h2,h3/NAME finds it after a failover too")
	case s.Info["role"] != "master":
		return inspect.Found(check, driver.Broken, saw, "more than one server accepts writes, so each grants the same lock",
			"use a server with a single master")
	case s.Info["cluster_enabled"] == "1" && !r.Cluster:
		return inspect.Found(check, driver.Broken, saw+", of a cluster, asked as if it were alone", "names that belong to other nodes fail with MOVED",
			"write redis+cluster://h1,h2,h3 and give the client several nodes; for redlock, use masters of their own")
	case old(s.Info["redis_version"]):
		return inspect.Found(check, driver.Broken, saw, fmt.Sprintf("the lock scripts need Redis %d.%d or later", oldest[0], oldest[1]), "upgrade the server")
	case strings.HasPrefix(saw, "keydb"), strings.HasPrefix(saw, "dragonfly"):
		return inspect.Found(check, driver.Warning, saw, "it speaks the protocol of Redis, but may keep other rules, and grant a lock twice: these locks are tested on Redis and Valkey only",
			"use Redis or Valkey, or guard the data with fencing tokens")
	}
	return inspect.Passed(check, saw)
}

// oldest is the oldest version that has all the commands that scripts use; SET with GET is the
// newest.
var oldest = [2]int{6, 2}

// old reports whether a version is too old. A version that is not a number passes; such a server
// fails later if it cannot run the scripts.
func old(version string) bool {
	first, rest, _ := strings.Cut(version, ".")
	major, err := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))])
	return err == nil && err2 == nil && cmp.Or(cmp.Compare(major, oldest[0]), cmp.Compare(minor, oldest[1])) < 0
}

// product returns the server's name and version. Forks report a version of Redis too, and their own
// name and version in other fields.
func product(info map[string]string) string {
	switch {
	case info["valkey_version"] != "":
		return "valkey " + info["valkey_version"]
	case info["dragonfly_version"] != "":
		return "dragonfly " + info["dragonfly_version"]
	case strings.Contains(info["executable"], "keydb"):
		return "keydb " + info["redis_version"]
	}
	return "redis " + cmp.Or(info["redis_version"], "of an unknown version")
}

// eviction checks what happens when memory is full. A server that evicts keys also evicts locks.
func eviction(s Server) driver.Finding {
	limit, policy := s.Info["maxmemory"], s.Info["maxmemory_policy"]
	switch {
	case limit == "":
		return unchecked("eviction", ErrNoSetting, "+info")
	case limit == "0":
		return inspect.Passed("eviction", "no maxmemory")
	case policy == "noeviction":
		return inspect.Passed("eviction", "maxmemory-policy noeviction")
	}
	return inspect.Found("eviction", driver.Broken, "maxmemory-policy "+policy,
		"when memory is short the server deletes locks that are held, and a second holder is possible",
		"CONFIG SET maxmemory-policy noeviction, or keep locks on a server of their own")
}

// persistence checks what a restart loses: all data that is not on disk when the server answers.
// With quarantine such a loss is safe.
func (r Rules) persistence(s Server) driver.Finding {
	const check = "persistence"
	aof, save, fsync := s.Info["aof_enabled"] == "1", s.config["save"], s.config["appendfsync"]
	var saw, means string
	switch {
	case aof && fsync.Value == "always":
		return inspect.Passed(check, "append-only file, synced before every answer")
	case aof && fsync.Err != nil && !r.Quarantine:
		return unchecked(check, fmt.Errorf("append-only file; when it is synced is unknown: %w", fsync.Err), "+config|get")
	case aof:
		saw, means = "append-only file, appendfsync "+cmp.Or(fsync.Value, "unknown"), "a power failure, or a crash while a sync is under way, loses the locks of the last two seconds"
	case save.Value != "":
		saw, means = "snapshots only (save "+save.Value+")", "a crash loses the locks since the last snapshot"
	case save.Err != nil:
		saw, means = "no append-only file; snapshots are unknown: "+save.Err.Error(), "a restart loses locks"
	default:
		saw, means = "none", "a restart loses every lock"
	}
	return r.waitedOut(check, saw, means+", and a second holder is possible until the first one learns of the loss", "appendonly yes with appendfsync always")
}

// replicas checks what a failover loses: all writes that the promoted replica has not received.
// Without replicas there is no failover.
func (r Rules) replicas(s Server) driver.Finding {
	count, err := strconv.Atoi(s.Info["connected_slaves"])
	if err != nil {
		return unchecked("replicas", ErrNoSetting, "+info")
	}
	if count == 0 {
		return inspect.Passed("replicas", "none, so no failover can lose a lock")
	}
	saw := strconv.Itoa(count)
	least := s.config["min-replicas-to-write"]
	if least.Err == nil {
		saw += fmt.Sprintf(", min-replicas-to-write %s, max-lag %s s", least.Value, s.config["min-replicas-max-lag"].Value)
	}
	if r.MinReplicas > 0 {
		saw += fmt.Sprintf(", min-replicas=%d here", r.MinReplicas)
	}
	writes, _ := strconv.Atoi(least.Value)
	switch {
	case r.Quarantine && least.Err != nil:
		return unchecked("replicas", least.Err, "+config|get")
	case r.Quarantine && writes < count:
		return inspect.Found("replicas", driver.Warning, saw,
			"a master that is cut off together with enough of its replicas continues while a replica is promoted, and two holders are possible",
			fmt.Sprintf("CONFIG SET min-replicas-to-write %d, the number of replicas, if it is acceptable that the loss of one replica stops all locks", count))
	}
	return r.waitedOut("replicas", saw, "replication is asynchronous: a failover may lose the latest locks, and a second holder is possible",
		"min-replicas=1 and min-replicas-to-write 1, which narrow the gap")
}

// waitedOut returns the finding about a server that may lose data, which is safe with quarantine.
func (r Rules) waitedOut(check, saw, means, do string) driver.Finding {
	if r.Quarantine {
		return inspect.Passed(check, saw+"; quarantine waits until lost leases have expired")
	}
	if !r.Cluster {
		do = "quarantine=on, or " + do
	}
	return inspect.Found(check, driver.Warning, saw, means, do+"; and guard the data with fencing tokens")
}
