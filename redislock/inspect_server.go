package redislock

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// run makes all the checks. A master that cannot be asked at all is the error.
func (in *inspection) run(ctx context.Context) ([]driver.Finding, error) {
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
	used, err := in.usedNames(ctx)
	if err != nil {
		return nil, err
	}
	findings := []driver.Finding{in.worst(version), in.worst(in.role)}
	findings = append(findings, in.cluster(ctx)...)
	findings = append(findings, rights...)
	return append(findings, in.worst(eviction), in.worst(in.persistence), in.worst(in.replicas),
		used, in.worst(in.idle), in.worst(encryption), clock, latency), nil
}

// oldest is the oldest server whose scripts and commands suffice.
var oldest = [2]int{6, 2}

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

// product is the server's name and version.
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

func (in *inspection) role(n node) driver.Finding {
	f := driver.Finding{Check: "role", Observed: n.info["role"]}
	switch n.info["role"] {
	case "master":
	case "":
		return noRight("role", cmp.Or(n.denied, errNoSetting), "+info")
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

// cluster looks whether the whole cluster is served; it finds nothing elsewhere.
func (in *inspection) cluster(ctx context.Context) []driver.Finding {
	if len(in.nodes) == 0 || in.nodes[0].info["cluster_enabled"] != "1" {
		return nil
	}
	if !in.conn.Cluster() {
		return []driver.Finding{{
			Check: "cluster", Severity: driver.Broken, Observed: "a node of a cluster, asked as if it were alone",
			Impact: "names that belong to other nodes fail with MOVED",
			Fix:    "write redis+cluster://h1,h2,h3 and give the client several nodes",
		}}
	}
	answers, err := in.conn.Each(ctx, "CLUSTER", "INFO")
	if err == nil && len(answers) > 0 {
		err = answers[0].Err
	}
	if err != nil {
		return []driver.Finding{noRight("cluster", err, "+cluster|info")}
	}
	info := parseInfo(answers[0].Text)
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

func eviction(n node) driver.Finding {
	limit, err := strconv.ParseInt(n.info["maxmemory"], 10, 64)
	if err != nil {
		return noRight("eviction", cmp.Or(n.denied, errNoSetting), "+info")
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

func bytes(n int64) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

func (in *inspection) persistence(n node) driver.Finding {
	if n.info == nil {
		return noRight("persistence", n.denied, "+info")
	}
	f := driver.Finding{Check: "persistence", Severity: driver.Warning}
	save, fsync := n.config["save"], n.config["appendfsync"]
	switch {
	case n.info["aof_enabled"] == "1" && fsync.err != nil:
		f = noRight(f.Check, fsync.err, "+config|get")
		f.Observed = "append-only file; when it is synced is unknown: " + f.Observed
		f.Impact = "unless it is synced before every answer, a power loss forgets the last locks"
		if !in.quarantine {
			return f
		}
	case n.info["aof_enabled"] == "1" && fsync.value == "always":
		f.Severity, f.Observed = driver.Good, "append-only file, synced before every answer"
		return f
	case n.info["aof_enabled"] == "1":
		f.Observed = "append-only file, appendfsync " + fsync.value
		f.Impact = "a power loss forgets the locks of the last second or so, and a second holder may get in"
	case save.err != nil:
		f.Observed = "no append-only file; snapshots are unknown: " + save.err.Error()
		f.Impact = "a restart forgets locks, and a second holder may get in while the first believes in its lock"
	case save.value != "":
		f.Observed = "snapshots only (save " + save.value + ")"
		f.Impact = "a crash forgets the locks since the last snapshot, and a second holder may get in"
	default:
		f.Observed = "none"
		f.Impact = "a restart forgets every lock, and a second holder may get in while the first believes in its lock"
	}
	return in.waitedOut(f, "appendonly yes with appendfsync always")
}

func (in *inspection) replicas(n node) driver.Finding {
	count, err := strconv.Atoi(n.info["connected_slaves"])
	if err != nil {
		return noRight("replicas", cmp.Or(n.denied, errNoSetting), "+info")
	}
	if count == 0 {
		return driver.Finding{Check: "replicas", Observed: "none, so no failover can forget a lock"}
	}
	f := driver.Finding{Check: "replicas", Severity: driver.Warning, Observed: fmt.Sprintf("%d", count)}
	if least := n.config["min-replicas-to-write"]; least.err == nil {
		f.Observed += fmt.Sprintf(", min-replicas-to-write %s, max-lag %s s", least.value, n.config["min-replicas-max-lag"].value)
	}
	if in.minReplicas > 0 {
		f.Observed += fmt.Sprintf(", min-replicas=%d here", in.minReplicas)
	}
	if in.quarantine {
		return in.stopsWhenCutOff(n, count, f)
	}
	f.Impact = "replication is asynchronous: a failover may forget the last locks, and a second holder gets in"
	return in.waitedOut(f, "min-replicas=1 and min-replicas-to-write 1, which narrow the gap")
}

// stopsWhenCutOff looks, for a quarantine, whether a master that is cut off from its
// replicas stops before one of them, promoted, grants.
func (in *inspection) stopsWhenCutOff(n node, count int, f driver.Finding) driver.Finding {
	least, lag := n.config["min-replicas-to-write"], n.config["min-replicas-max-lag"]
	if err := cmp.Or(least.err, lag.err); err != nil {
		f = noRight(f.Check, err, "+config|get")
		f.Severity, f.Impact = driver.Broken, "locks are refused: with a quarantine and replicas this must be known"
		return f
	}
	writes, _ := strconv.Atoi(least.value)
	seconds, _ := strconv.Atoi(lag.value)
	switch why := cutOff(writes, seconds, in.replicaLag); {
	case why != "":
		f.Severity, f.Fix = driver.Broken, why
		f.Impact = "locks are refused: a master that is cut off would go on renewing them while a promoted replica grants them anew"
	case writes < count:
		f.Severity = driver.Warning
		f.Impact = "a master that is cut off together with enough of its replicas goes on while another one is promoted"
		f.Fix = fmt.Sprintf("CONFIG SET min-replicas-to-write %d, as many as there are", count)
	default:
		f.Severity, f.Observed = driver.Good, f.Observed+"; quarantine waits out what a failover forgets"
	}
	return f
}

// waitedOut says what to do about a server that may forget, which is no danger
// under quarantine.
func (in *inspection) waitedOut(f driver.Finding, other string) driver.Finding {
	if in.quarantine {
		return driver.Finding{Check: f.Check, Observed: f.Observed + "; quarantine waits out what was forgotten"}
	}
	f.Fix = "quarantine=on, or " + other + "; and guard the data with fencing tokens"
	if in.conn.Cluster() {
		f.Fix = other + "; and guard the data with fencing tokens"
	}
	return f
}

func (in *inspection) idle(n node) driver.Finding {
	f := driver.Finding{Check: "idle clients", Observed: "never closed"}
	timeout := n.config["timeout"]
	if timeout.err != nil {
		return noRight(f.Check, timeout.err, "+config|get")
	}
	seconds, err := strconv.Atoi(timeout.value)
	if err != nil || seconds == 0 {
		return f
	}
	f.Observed = fmt.Sprintf("closed after %d s", seconds)
	if time.Duration(seconds)*time.Second <= in.ttl/3 {
		f.Severity = driver.Warning
		f.Impact = fmt.Sprintf("connections close between renewals, which come every %v; each then needs a new one in time", in.ttl/3)
		f.Fix = "CONFIG SET timeout 0, or a shorter TTL"
	}
	return f
}

func encryption(n node) driver.Finding {
	f := driver.Finding{Check: "encryption"}
	tls, port, bind := n.config["tls-port"], n.config["port"], n.config["bind"]
	switch {
	case port.err != nil:
		return noRight(f.Check, port.err, "+config|get")
	case port.value == "0":
		f.Observed = "the server takes TLS only"
	case tls.err == nil && tls.value != "0" && tls.value != "":
		f.Observed = "the server takes TLS on port " + tls.value + ", and plain connections on port " + port.value
	case bind.err == nil && loopback(bind.value):
		f.Observed = "plain, on the loopback interface only"
	default:
		f.Severity = driver.Warning
		f.Observed = "plain connections"
		f.Impact = "whoever can read the network sees passwords and owners, and can take or free any lock"
		f.Fix = "rediss:// and tls-port, unless the network is your own"
	}
	return f
}

// loopback reports whether all addresses of a bind setting are local ones.
func loopback(bind string) bool {
	words := strings.Fields(bind)
	for _, w := range words {
		w = strings.TrimPrefix(w, "-")
		if w != "::1" && w != "localhost" && !strings.HasPrefix(w, "127.") {
			return false
		}
	}
	return len(words) > 0
}
