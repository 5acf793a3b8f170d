package redistest

import (
	"strconv"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// StartRedisReplica starts a replica of master, with further settings in args, and waits until it
// has all the data.
func StartRedisReplica(t hosttest.TB, master *Redis, args ...string) *Redis {
	t.Helper()
	settings := []string{"--replicaof", "127.0.0.1 " + strconv.Itoa(master.Port())}
	if master.password != "" {
		settings = append(settings, "--masterauth", master.password, "--requirepass", master.password)
	}
	r := StartRedis(t, append(settings, args...)...)
	r.WaitLink(t)
	return r
}

// Replicaof makes the server a replica of host and port, or a master with "no" and "one". It does
// not wait for the link. With a port that nobody listens on, the replica is cut off but keeps its
// data.
func (r *Redis) Replicaof(t hosttest.TB, host, port string) {
	t.Helper()
	r.Do(t, "REPLICAOF", host, port)
}

// WaitLink waits until the server, a replica, is connected to its master and has caught up.
func (r *Redis) WaitLink(t hosttest.TB) {
	t.Helper()
	waitFor(t, "the replica's link to its master", func() bool {
		info, err := r.TryDo("INFO", "replication")
		return err == nil && infoField(info, "master_link_status") == "up"
	})
}

// WaitReplicas waits until the server counts n good replicas, as min-replicas-to-write requires for
// writes.
func (r *Redis) WaitReplicas(t hosttest.TB, n int) {
	t.Helper()
	waitFor(t, "replicas in step", func() bool {
		info, err := r.TryDo("INFO", "replication")
		return err == nil && infoField(info, "min_slaves_good_slaves") == strconv.Itoa(n)
	})
}

// waitFor asks again and again until the answer is yes.
func waitFor(t hosttest.TB, what string, yes func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hosttest.Patience); !yes(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not seen within %v", what, hosttest.Patience)
		}
	}
}
