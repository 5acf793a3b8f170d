package redisinspect

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/inspect"
)

// server is about what the server is. Where more than one takes writes each grants the same
// lock; and forks that speak the protocol may keep other rules.
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

// oldest is the oldest server whose scripts and commands suffice: SET with GET came then.
var oldest = [2]int{6, 2}

// old reports whether a server is too old. One whose version is no number is tried by the
// scripts alone.
func old(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return err == nil && cmp.Or(cmp.Compare(major, oldest[0]), cmp.Compare(minor, oldest[1])) < 0
}

// product is the server's name and version. Forks claim a version of Redis, too, and say
// in a field of their own what they are.
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

// eviction is about a memory that fills up: a server that evicts takes a lock for any
// other key.
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
		"when memory is short the server deletes locks that are held, and lets a second holder in",
		"CONFIG SET maxmemory-policy noeviction, or keep locks on a server of their own")
}

// persistence is about what a restart forgets: everything that is not on the disk by the
// time of the answer. Under a quarantine that is no danger.
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
		saw, means = "snapshots only (save "+save.Value+")", "a crash forgets the locks since the last snapshot"
	case save.Err != nil:
		saw, means = "no append-only file; snapshots are unknown: "+save.Err.Error(), "a restart forgets locks"
	default:
		saw, means = "none", "a restart forgets every lock"
	}
	return r.waitedOut(check, saw, means+", and a second holder may get in while the first believes in its lock", "appendonly yes with appendfsync always")
}

// replicas is about what a failover forgets: what the promoted replica has not heard of.
// Without replicas there is no failover.
func (r Rules) replicas(s Server) driver.Finding {
	count, err := strconv.Atoi(s.Info["connected_slaves"])
	if err != nil {
		return unchecked("replicas", ErrNoSetting, "+info")
	}
	if count == 0 {
		return inspect.Passed("replicas", "none, so no failover can forget a lock")
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
			"a master that is cut off together with enough of its replicas goes on while another one is promoted, and two holders are possible",
			fmt.Sprintf("CONFIG SET min-replicas-to-write %d, as many as there are, if the loss of one replica may stop all locks; leave it otherwise", count))
	}
	return r.waitedOut("replicas", saw, "replication is asynchronous: a failover may forget the last locks, and a second holder gets in",
		"min-replicas=1 and min-replicas-to-write 1, which narrow the gap")
}

// waitedOut is the finding about a server that may forget, which is no danger under
// quarantine.
func (r Rules) waitedOut(check, saw, means, do string) driver.Finding {
	if r.Quarantine {
		return inspect.Passed(check, saw+"; quarantine waits out what was forgotten")
	}
	if !r.Cluster {
		do = "quarantine=on, or " + do
	}
	return inspect.Found(check, driver.Warning, saw, means, do+"; and guard the data with fencing tokens")
}
