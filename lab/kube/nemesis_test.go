package kube

import (
	"math/rand/v2"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/internal/freeze"
	"github.com/fencelock/fencelock/internal/testkit/nemesistest"
)

// TestNemesis kills and freezes two API servers, their etcd and workers, and disturbs connections,
// while the workers take locks. Half of the workers use each server.
func TestNemesis(t *testing.T) {
	first := start(t)
	servers, namespace := []*server{first, first.beside(t)}, first.namespace(t)
	nemesistest.Nemesis{
		TTL:     3 * time.Second, // the clock of an API server has whole seconds
		Disturb: func(note nemesistest.Note) { disturb(t, servers, note) }, Rest: 6 * time.Second,
		Rules: history.Rules{Search: time.Minute, Closed: 30 * time.Second, Recovery: 15 * time.Second},
		Place: func(worker int, through func(addr string) string) string {
			s := servers[worker%2]
			return "https://" + through(strings.TrimPrefix(s.url, "https://")) + " " + s.ca() + " " + namespace
		},
	}.Run(t)
}

// disturb injects a random fault of an API server or of etcd, and ends it. note records it.
func disturb(t testing.TB, servers []*server, note nemesistest.Note) {
	s := servers[rand.N(len(servers))]
	switch rand.N(5) {
	case 0:
		defer note("kill an API server")()
		kill(s.api)
		nemesistest.Lull()
		s.startAPI(t)
	case 1:
		defer note("freeze an API server")()
		freezeFor(t, s.api)
	case 2:
		defer note("freeze all API servers")() // as if etcd had no majority
		for _, s := range servers {
			_ = s.api.Process.Signal(syscall.SIGSTOP)
		}
		freezeFor(t, s.api)
		for _, s := range servers {
			_ = s.api.Process.Signal(syscall.SIGCONT)
		}
	case 3:
		defer note("freeze etcd")()
		freezeFor(t, s.etcd.cmd)
	case 4:
		defer note("kill etcd")()
		kill(s.etcd.cmd)
		nemesistest.Lull()
		s.startEtcd(t)
	}
}

// freezeFor stops a server for a while.
func freezeFor(t testing.TB, cmd *exec.Cmd) {
	if err := freeze.Process(cmd.Process); err != nil {
		t.Error(err)
	}
	nemesistest.Lull()
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Error(err)
	}
}
