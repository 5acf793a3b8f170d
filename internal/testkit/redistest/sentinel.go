package redistest

import (
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// A Sentinel is one master, one replica, and the Sentinels that monitor them. If the master does
// not answer for 500 ms and a majority of all Sentinels agrees, they fail over.
type Sentinel struct {
	master, replica *Redis
	ports           map[*Redis]int // at which the others find them
	watchers        []*Redis
}

const sentinelName = "fencelock"

// StartSentinel starts Sentinels (at least one) with a master and a replica, and waits until all
// know one another.
func StartSentinel(t hosttest.TB, sentinels int) *Sentinel {
	t.Helper()
	return StartSentinelBehind(t, sentinels, (*Redis).Port)
}

// StartSentinelBehind is StartSentinel for a master and a replica with further settings. Sentinels
// and clients know them by other ports of 127.0.0.1, such as those of proxies.
func StartSentinelBehind(t hosttest.TB, sentinels int, port func(*Redis) int, args ...string) *Sentinel {
	t.Helper()
	s := &Sentinel{ports: map[*Redis]int{}}
	for _, r := range []**Redis{&s.master, &s.replica} {
		*r = StartRedis(t, args...)
		s.ports[*r] = port(*r)
		(*r).Do(t, "CONFIG", "SET", "replica-announce-ip", "127.0.0.1")
		(*r).Do(t, "CONFIG", "SET", "replica-announce-port", strconv.Itoa(s.ports[*r]))
		(*r).Do(t, "CONFIG", "REWRITE")
	}
	s.replica.Replicaof(t, "127.0.0.1", strconv.Itoa(s.ports[s.master]))
	s.replica.WaitLink(t)
	for range sentinels {
		r := &Redis{sentinel: true, settings: []string{
			"--sentinel", "monitor " + sentinelName, "127.0.0.1", strconv.Itoa(s.ports[s.master]), strconv.Itoa(sentinels/2 + 1),
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

// Sentinels returns the Sentinels themselves, to freeze or kill them.
func (s *Sentinel) Sentinels() []*Redis { return s.watchers }

// MasterName returns the name of the master.
func (s *Sentinel) MasterName() string { return sentinelName }

// Master returns the server that was the master at the start.
func (s *Sentinel) Master() *Redis { return s.master }

// Replica returns the server that was the replica at the start.
func (s *Sentinel) Replica() *Redis { return s.replica }

// Known returns the address by which the Sentinels and their clients know the master or the
// replica.
func (s *Sentinel) Known(r *Redis) string { return addr(s.ports[r]) }

// WaitMaster waits until every Sentinel that can answer names the same master, which does not have
// the address not and reports that it is a master. It returns the address. If not is "", it accepts
// any master.
func (s *Sentinel) WaitMaster(t hosttest.TB, not string) string {
	t.Helper()
	var master string
	waitFor(t, "a new master", func() bool {
		master = s.Agreed()
		return master != "" && master != not && s.isMaster(master)
	})
	return master
}

// Calm reports whether every Sentinel that can answer sees a master that is up, and none is failing
// over.
func (s *Sentinel) Calm() bool {
	for _, w := range s.watchers {
		if w.up() && !knows(w, len(s.watchers)-1) {
			return false
		}
	}
	return true
}

// Steady reports whether the Sentinels are calm, and the servers report that they are a master and
// its replica.
func (s *Sentinel) Steady() bool {
	master := s.Agreed()
	if !s.Calm() || master == "" {
		return false
	}
	for _, r := range []*Redis{s.master, s.replica} {
		role, err := r.TryDo("INFO", "replication")
		if err != nil {
			return false
		}
		if s.Known(r) == master && (infoField(role, "role") != "master" || infoField(role, "connected_slaves") != "1") {
			return false
		}
		if s.Known(r) != master && infoField(role, "master_link_status") != "up" {
			return false
		}
	}
	return true
}

// Agreed returns the address of the master that all Sentinels that can answer name, or "" if they
// disagree.
func (s *Sentinel) Agreed() (master string) {
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

// Demote makes a server a replica that reports that it is the master, if the Sentinels are calm and
// say that the other one is. They would do so themselves, ten seconds later.
func (s *Sentinel) Demote() {
	master := s.Agreed()
	if !s.Calm() || !s.isMaster(master) {
		return
	}
	for _, r := range []*Redis{s.master, s.replica} {
		if known := s.Known(r); known != master && s.isMaster(known) {
			host, port, _ := strings.Cut(master, ":")
			_, _ = r.TryDo("REPLICAOF", host, port)
		}
	}
}

func (s *Sentinel) isMaster(addr string) bool {
	for _, r := range []*Redis{s.master, s.replica} {
		if s.Known(r) == addr && r.up() {
			role, err := r.TryDo("ROLE")
			return err == nil && strings.HasPrefix(role, "master\n")
		}
	}
	return false
}
