package redisinspect

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// Run makes all the checks. A master that cannot be asked at all is the error. Latency comes
// first, since its command is the least that a server answers; on several masters the
// worst finding of each check counts.
func (in *Inspection) Run(ctx context.Context) ([]driver.Finding, error) {
	latency, err := in.latency(ctx)
	if err != nil {
		return nil, err
	}
	if err := in.ask(ctx); err != nil {
		return nil, err
	}
	rights, err := in.rights(ctx)
	if err != nil {
		return nil, err
	}
	clock, err := in.clock(ctx)
	if err != nil {
		return nil, err
	}
	findings := []driver.Finding{in.worst(version), in.worst(in.role)}
	findings = append(findings, in.cluster(ctx)...)
	findings = append(findings, rights...)
	return append(findings, in.worst(eviction), in.worst(in.persistence), in.worst(in.replicas), clock, latency), nil
}

// oldest is the oldest server whose scripts and commands suffice: SET with GET came then.
var oldest = [2]int{6, 2}

// version is about what the server can do. Forks that speak the protocol may keep other
// rules, of which the version of Redis they claim says nothing.
func version(n node) driver.Finding {
	if n.info == nil {
		return noRight("version", n.denied, "+info")
	}
	f := driver.Finding{Check: "version", Observed: product(n.info)}
	var major, minor int
	_, err := fmt.Sscanf(n.info["redis_version"], "%d.%d", &major, &minor)
	switch {
	case err != nil:
		f.Severity = driver.Unknown
		f.Impact = "nobody knows whether this server keeps the rules of Redis"
		f.Fix = "run the tests of your own locks against it"
	case cmp.Or(cmp.Compare(major, oldest[0]), cmp.Compare(minor, oldest[1])) < 0:
		f.Severity = driver.Broken
		f.Impact = fmt.Sprintf("the lock scripts need Redis %d.%d or later", oldest[0], oldest[1])
		f.Fix = "upgrade the server"
	case strings.HasPrefix(f.Observed, "keydb") || strings.HasPrefix(f.Observed, "dragonfly"):
		f.Severity = driver.Warning
		f.Impact = "it speaks the protocol of Redis, but these locks are tested on Redis only"
		f.Fix = "use Redis or Valkey, or guard the data with fencing tokens"
	}
	return f
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

// role is about who takes writes: exactly one server may, for each name.
func (in *Inspection) role(n node) driver.Finding {
	f := driver.Finding{Check: "role", Observed: n.info["role"]}
	switch n.info["role"] {
	case "master":
	case "":
		return noRight("role", cmp.Or(n.denied, ErrNoSetting), "+info")
	case "slave":
		f.Severity = driver.Broken
		f.Observed = fmt.Sprintf("a replica of %s:%s", n.info["master_host"], n.info["master_port"])
		f.Impact = "a replica refuses every lock"
		f.Fix = "connect to the master; redis+sentinel://h1,h2,h3/NAME finds it after a failover too"
	default:
		f.Severity = driver.Broken
		f.Impact = "more than one server accepts writes, so each grants the same lock"
		f.Fix = "use a server with a single master"
	}
	return f
}

// cluster looks whether the whole cluster is served; it finds nothing elsewhere. A name
// whose slot nobody serves cannot be locked, whatever the others say.
func (in *Inspection) cluster(ctx context.Context) []driver.Finding {
	if len(in.nodes) == 0 || in.nodes[0].info["cluster_enabled"] != "1" {
		return nil
	}
	if !in.Conn.Cluster() {
		return []driver.Finding{{
			Check: "cluster", Severity: driver.Broken, Observed: "a node of a cluster, asked as if it were alone",
			Impact: "names that belong to other nodes fail with MOVED",
			Fix:    "write redis+cluster://h1,h2,h3 and give the client several nodes",
		}}
	}
	answers, err := in.Conn.Each(ctx, "CLUSTER", "INFO")
	if err == nil && len(answers) > 0 {
		err = answers[0].Err
	}
	if err != nil {
		return []driver.Finding{noRight("cluster", err, "+cluster|info")}
	}
	info := redisfmt.ParseInfo(answers[0].Text)
	f := driver.Finding{Check: "cluster", Observed: fmt.Sprintf("state %s, %s of 16384 slots served, %d masters",
		info["cluster_state"], info["cluster_slots_ok"], len(in.nodes))}
	if info["cluster_state"] != "ok" {
		f.Severity = driver.Broken
		f.Impact = "some or all names cannot be locked"
		f.Fix = "bring the missing masters back: redis-cli --cluster check HOST:PORT"
	}
	return []driver.Finding{f}
}

// nearlyFull is the part of maxmemory from which a full server is near.
const nearlyFull = 0.9

// eviction is about a memory that fills up. A server that evicts takes a lock for any
// other key; one that does not refuses what needs more memory, which a renewal does not.
func eviction(n node) driver.Finding {
	limit, err := strconv.ParseInt(n.info["maxmemory"], 10, 64)
	if err != nil {
		return noRight("eviction", cmp.Or(n.denied, ErrNoSetting), "+info")
	}
	used, _ := strconv.ParseFloat(n.info["used_memory"], 64) // 0 if unknown
	policy := n.info["maxmemory_policy"]
	f := driver.Finding{Check: "eviction", Observed: fmt.Sprintf("maxmemory %s, %s", bytes(limit), policy)}
	switch {
	case limit == 0:
		f.Observed = "no maxmemory"
	case policy != "noeviction":
		f.Severity = driver.Broken
		f.Impact = "when memory is short the server deletes locks that are held, and lets a second holder in"
		f.Fix = "CONFIG SET maxmemory-policy noeviction, or keep locks on a server of their own"
	case used > nearlyFull*float64(limit):
		f.Severity = driver.Warning
		f.Observed += fmt.Sprintf(", %.0f %% used", 100*used/float64(limit))
		f.Impact = "a full server refuses new locks (OOM); locks that are held can still be renewed and released"
		f.Fix = "raise maxmemory, or remove data"
	}
	return f
}

// bytes writes a size as people read it.
func bytes(n int64) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

// persistence is about what a restart forgets: everything that is not on the disk by the
// time of the answer. Under a quarantine that is no danger.
func (in *Inspection) persistence(n node) driver.Finding {
	if n.info == nil {
		return noRight("persistence", n.denied, "+info")
	}
	f := driver.Finding{Check: "persistence", Severity: driver.Warning}
	save, fsync := n.config["save"], n.config["appendfsync"]
	switch {
	case n.info["aof_enabled"] == "1" && fsync.Err != nil:
		f = noRight(f.Check, fsync.Err, "+config|get")
		f.Observed = "append-only file; when it is synced is unknown: " + f.Observed
		f.Impact = "unless it is synced before every answer, a power loss forgets the last locks"
		if !in.Quarantine {
			return f
		}
	case n.info["aof_enabled"] == "1" && fsync.Value == "always":
		f.Severity, f.Observed = driver.Good, "append-only file, synced before every answer"
		return f
	case n.info["aof_enabled"] == "1":
		f.Observed = "append-only file, appendfsync " + fsync.Value
		f.Impact = "a power loss forgets the locks of the last second or so, and a second holder may get in"
	case save.Err != nil:
		f.Observed = "no append-only file; snapshots are unknown: " + save.Err.Error()
		f.Impact = "a restart forgets locks, and a second holder may get in while the first believes in its lock"
	case save.Value != "":
		f.Observed = "snapshots only (save " + save.Value + ")"
		f.Impact = "a crash forgets the locks since the last snapshot, and a second holder may get in"
	default:
		f.Observed = "none"
		f.Impact = "a restart forgets every lock, and a second holder may get in while the first believes in its lock"
	}
	return in.waitedOut(f, "appendonly yes with appendfsync always")
}

// replicas is about what a failover forgets: what the promoted replica has not heard of.
// Without replicas there is no failover.
func (in *Inspection) replicas(n node) driver.Finding {
	count, err := strconv.Atoi(n.info["connected_slaves"])
	if err != nil {
		return noRight("replicas", cmp.Or(n.denied, ErrNoSetting), "+info")
	}
	if count == 0 {
		return driver.Finding{Check: "replicas", Observed: "none, so no failover can forget a lock"}
	}
	f := driver.Finding{Check: "replicas", Severity: driver.Warning, Observed: fmt.Sprintf("%d", count)}
	if least := n.config["min-replicas-to-write"]; least.Err == nil {
		f.Observed += fmt.Sprintf(", min-replicas-to-write %s, max-lag %s s", least.Value, n.config["min-replicas-max-lag"].Value)
	}
	if in.MinReplicas > 0 {
		f.Observed += fmt.Sprintf(", min-replicas=%d here", in.MinReplicas)
	}
	if in.Quarantine {
		return in.stopsWhenCutOff(n, count, f)
	}
	f.Impact = "replication is asynchronous: a failover may forget the last locks, and a second holder gets in"
	return in.waitedOut(f, "min-replicas=1 and min-replicas-to-write 1, which narrow the gap")
}

// stopsWhenCutOff looks, for a quarantine, whether a master that is cut off from its
// replicas stops before one of them, promoted, grants.
func (in *Inspection) stopsWhenCutOff(n node, count int, f driver.Finding) driver.Finding {
	least, lag := n.config["min-replicas-to-write"], n.config["min-replicas-max-lag"]
	if err := cmp.Or(least.Err, lag.Err); err != nil {
		f = noRight(f.Check, err, "+config|get")
		f.Severity, f.Impact = driver.Broken, "locks are refused: with a quarantine and replicas this must be known"
		return f
	}
	writes, _ := strconv.Atoi(least.Value)
	seconds, _ := strconv.Atoi(lag.Value)
	switch why := CutOff(writes, seconds, in.ReplicaLag); {
	case why != "":
		f.Severity, f.Fix = driver.Broken, why
		f.Impact = "locks are refused: a master that is cut off would go on renewing them while a promoted replica grants them anew"
	case writes < count:
		f.Severity = driver.Warning
		f.Impact = "a master that is cut off together with enough of its replicas goes on while another one is promoted"
		f.Fix = fmt.Sprintf("CONFIG SET min-replicas-to-write %d, as many as there are, if the loss of one replica may stop all locks; leave it otherwise", count)
	default:
		f.Severity, f.Observed = driver.Good, f.Observed+"; quarantine waits out what a failover forgets"
	}
	return f
}

// waitedOut says what to do about a server that may forget, which is no danger
// under quarantine.
func (in *Inspection) waitedOut(f driver.Finding, other string) driver.Finding {
	if in.Quarantine {
		return driver.Finding{Check: f.Check, Observed: f.Observed + "; quarantine waits out what was forgotten"}
	}
	f.Fix = "quarantine=on, or " + other + "; and guard the data with fencing tokens"
	if in.Conn.Cluster() {
		f.Fix = other + "; and guard the data with fencing tokens"
	}
	return f
}

// CutOff says what is wrong with the settings of a master that has replicas, for
// clients that count on a lag; empty if nothing is.
func CutOff(least, lag int, known time.Duration) string {
	switch {
	case least < 1:
		return "CONFIG SET min-replicas-to-write 1"
	case lag < 1:
		return "CONFIG SET min-replicas-max-lag 10"
	case known < time.Duration(lag)*time.Second:
		return fmt.Sprintf("min-replicas-max-lag is %d s; set the replica lag of every client to that (replica-lag=%ds in a URL)", lag, lag)
	}
	return ""
}
