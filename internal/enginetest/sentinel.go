package enginetest

import (
	"strconv"
	"strings"
	"testing"
)

// A Sentinel is one master, one replica, and the Sentinels that watch over
// them. A master that is silent for 500 ms is failed over when the majority of
// all Sentinels says so.
type Sentinel struct {
	master, replica *Redis
	watchers        []*Redis
}

const sentinelName = "fencelock"

// StartSentinel starts the given number of Sentinels, at least 1, with a master
// and a replica, and waits until all know one another.
func StartSentinel(t testing.TB, sentinels int) *Sentinel {
	t.Helper()
	s := &Sentinel{master: StartRedis(t)}
	s.replica = StartRedisReplica(t, s.master)
	for range sentinels {
		r := &Redis{sentinel: true, settings: []string{
			"--sentinel", "monitor " + sentinelName, "127.0.0.1", strconv.Itoa(s.master.Port()), strconv.Itoa(sentinels/2 + 1),
			"--sentinel", "down-after-milliseconds " + sentinelName, "500",
			"--sentinel", "failover-timeout " + sentinelName, "3000",
		}}
		r.launch(t)
		s.watchers = append(s.watchers, r)
	}
	for _, w := range s.watchers {
		waitFor(t, "sentinels that know one another", func() bool { return knows(w, sentinels-1) })
	}
	return s
}

// knows reports whether a Sentinel sees the master, its replica and so many
// other Sentinels.
func knows(w *Redis, others int) bool {
	reply, err := w.TryDo("SENTINEL", "MASTER", sentinelName)
	if err != nil {
		return false
	}
	fields := map[string]string{}
	lines := strings.Split(reply, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		fields[lines[i]] = lines[i+1]
	}
	return fields["flags"] == "master" && fields["num-slaves"] == "1" &&
		fields["num-other-sentinels"] == strconv.Itoa(others)
}

// Addrs returns the addresses of the Sentinels.
func (s *Sentinel) Addrs() []string { return addrs(s.watchers) }

func addrs(servers []*Redis) (all []string) {
	for _, r := range servers {
		all = append(all, r.Addr())
	}
	return all
}

// Sentinels returns the Sentinels themselves, to freeze or kill.
func (s *Sentinel) Sentinels() []*Redis { return s.watchers }

// MasterName returns the name clients ask the Sentinels for.
func (s *Sentinel) MasterName() string { return sentinelName }

// Master returns the server that was master at the start.
func (s *Sentinel) Master() *Redis { return s.master }

// Replica returns the server that was replica at the start.
func (s *Sentinel) Replica() *Redis { return s.replica }

// WaitMaster waits until every Sentinel that can answer names the same master, not
// the one at the address not, and that server says so itself. It returns the
// address. With a not of "" it waits for any master.
func (s *Sentinel) WaitMaster(t testing.TB, not string) string {
	t.Helper()
	var master string
	waitFor(t, "a new master", func() bool {
		master = s.agreed()
		return master != "" && master != not && s.isMaster(master)
	})
	return master
}

// agreed returns the address of the master all Sentinels name that can answer, or "".
func (s *Sentinel) agreed() (master string) {
	for _, w := range s.watchers {
		if !w.up() {
			continue
		}
		reply, err := w.TryDo("SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinelName)
		named := strings.Replace(reply, "\n", ":", 1)
		if err != nil || (master != "" && named != master) {
			return ""
		}
		master = named
	}
	return master
}

func (s *Sentinel) isMaster(addr string) bool {
	for _, r := range []*Redis{s.master, s.replica} {
		if r.Addr() == addr && r.up() {
			role, err := r.TryDo("ROLE")
			return err == nil && strings.HasPrefix(role, "master\n")
		}
	}
	return false
}
