//go:build unix

package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/mariadbtest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// scriptTB is the testing.TB for servers that a script starts. A failure fails the script, and the
// servers stop at the end of the script.
type scriptTB struct {
	testing.TB
	ts *testscript.TestScript
}

func (s scriptTB) Helper()                   {}
func (s scriptTB) Failed() bool              { return false }
func (s scriptTB) Cleanup(f func())          { s.ts.Defer(f) }
func (s scriptTB) Log(args ...any)           { s.ts.Logf("%s", fmt.Sprintln(args...)) }
func (s scriptTB) Logf(f string, a ...any)   { s.ts.Logf(f, a...) }
func (s scriptTB) Error(args ...any)         { s.ts.Fatalf("%s", fmt.Sprintln(args...)) }
func (s scriptTB) Errorf(f string, a ...any) { s.ts.Fatalf(f, a...) }
func (s scriptTB) Fatal(args ...any)         { s.ts.Fatalf("%s", fmt.Sprintln(args...)) }
func (s scriptTB) Fatalf(f string, a ...any) { s.ts.Fatalf(f, a...) }

// serversKey is the key of the scriptServers among the values of a script.
type serversKey struct{}

// scriptServers are the servers that a script has started, by name, and when each was last frozen.
type scriptServers struct {
	redis    map[string]*redistest.Redis
	postgres map[string]*pgtest.Postgres
	mariadb  map[string]*mariadbtest.MariaDB
	proxies  map[string]*faults.Proxy
	frozen   map[string]time.Time
}

func newScriptServers() *scriptServers {
	return &scriptServers{
		redis:    map[string]*redistest.Redis{},
		postgres: map[string]*pgtest.Postgres{},
		mariadb:  map[string]*mariadbtest.MariaDB{},
		proxies:  map[string]*faults.Proxy{},
		frozen:   map[string]time.Time{},
	}
}

// startCommands are the "redis" commands that start a server or a proxy. Each receives the
// arguments after the name, and sets the variable of that name to the address.
var startCommands = map[string]func(s *scriptServers, tb scriptTB, name string, args []string){
	"start": func(s *scriptServers, tb scriptTB, name string, args []string) {
		s.add(tb, name, redistest.StartRedis(tb, args...))
	},
	"nodes": func(s *scriptServers, tb scriptTB, name string, args []string) {
		n, err := strconv.Atoi(args[0])
		tb.ts.Check(err)
		var addrs []string
		for i := range n {
			r := redistest.StartRedis(tb, args[1:]...)
			s.add(tb, name+strconv.Itoa(i+1), r)
			addrs = append(addrs, r.Addr())
		}
		tb.ts.Setenv(name, strings.Join(addrs, ","))
	},
	"tls": func(s *scriptServers, tb scriptTB, name string, args []string) {
		r, ca := redistest.StartRedisTLS(tb, args...)
		s.add(tb, name, r)
		tb.ts.Setenv(name+"_CA", ca)
	},
	"replica": func(s *scriptServers, tb scriptTB, name string, args []string) {
		r := redistest.StartRedisReplica(tb, s.redis[args[0]], args[1:]...)
		r.WaitLink(tb)
		s.add(tb, name, r)
	},
	"proxy": func(s *scriptServers, tb scriptTB, name string, args []string) {
		p, err := faults.NewProxy(s.redis[args[0]].Addr())
		tb.ts.Check(err)
		tb.Cleanup(func() { _ = p.Close() })
		s.proxies[name] = p
		tb.ts.Setenv(name, p.Addr())
	},
	"sentinel": func(s *scriptServers, tb scriptTB, name string, _ []string) {
		sentinel := redistest.StartSentinel(tb, 1)
		tb.ts.Setenv(name, strings.Join(sentinel.Addrs(), ","))
		tb.ts.Setenv(name+"_MASTER", sentinel.MasterName())
		s.redis[name] = sentinel.Master()
	},
	"cluster": func(s *scriptServers, tb scriptTB, name string, _ []string) {
		cluster := redistest.StartRedisCluster(tb, 3)
		tb.ts.Setenv(name, strings.Join(cluster.Addrs(), ","))
		s.redis[name] = cluster.Nodes()[0]
	},
}

func (s *scriptServers) add(tb scriptTB, name string, r *redistest.Redis) {
	s.redis[name] = r
	tb.ts.Setenv(name, r.Addr())
}

// drop makes a proxy lose all traffic from now on. It returns false if the proxy does not exist.
func (s *scriptServers) drop(name string) bool {
	p := s.proxies[name]
	if p == nil {
		return false
	}
	s.frozen[name] = time.Now()
	p.Drop(faults.Both)
	return true
}

// scriptRedis implements the script command redis:
//
//	redis start|tls|sentinel|cluster NAME [SETTING...]
//	redis nodes NAME N [SETTING...]    start NAME1 to NAMEN
//	redis replica NAME MASTER
//	redis proxy NAME SERVER
//	redis drop PROXY                   lose all traffic, keep the connections open
//	redis freeze|thaw|kill|restart NAME
//	redis do NAME COMMAND...           print the reply
//	redis expires NAME                 fail if a key has no time to live
func scriptRedis(t *testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < 2 {
			ts.Fatalf("usage: redis start|do|freeze|... NAME [args...]")
		}
		s, tb := ts.Value(serversKey{}).(*scriptServers), scriptTB{t, ts}
		if start, ok := startCommands[args[0]]; ok {
			start(s, tb, args[1], args[2:])
			return
		}
		if args[0] == "drop" && s.drop(args[1]) {
			return
		}
		r := s.redis[args[1]]
		if r == nil {
			ts.Fatalf("there is no redis %s", args[1])
		}
		switch args[0] {
		case "do":
			fmt.Fprintln(ts.Stdout(), r.Do(tb, args[2:]...))
		case "freeze":
			s.frozen[args[1]] = time.Now()
			r.Freeze(tb)
		case "thaw":
			r.Thaw(tb)
		case "kill":
			r.Kill(tb)
		case "restart":
			r.Restart(tb)
		case "expires":
			wantExpiries(tb, r)
		default:
			ts.Fatalf("redis %s: unknown", args[0])
		}
	}
}

// wantExpiries fails if a key has no time to live.
func wantExpiries(tb scriptTB, r *redistest.Redis) {
	for key := range strings.FieldsSeq(r.Do(tb, "KEYS", "*")) {
		if r.Do(tb, "PTTL", key) == "-1" {
			tb.Fatalf("the key %s has no time to live", key)
		}
	}
}

// scriptEnded implements "ended PIDFILE NAME D". It waits for the end of the process, and fails if
// that is later than D after the server NAME was frozen or the proxy NAME dropped.
func scriptEnded(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: ended PIDFILE NAME DURATION")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	limit, err := time.ParseDuration(args[2])
	ts.Check(err)
	end := ts.Value(serversKey{}).(*scriptServers).frozen[args[1]].Add(limit)
	for running(pid) {
		if time.Now().After(end) {
			ts.Fatalf("process %d still runs %v after the server was frozen", pid, limit)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// running reports whether a process exists and is not a zombie.
func running(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	i := strings.LastIndexByte(string(stat), ')')
	return err != nil || i < 0 || len(stat) <= i+2 || stat[i+2] != 'Z'
}
