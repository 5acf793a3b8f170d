//go:build unix

package environments_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redislock/goredis"
)

// redisSite is how the engine reaches Redis.
type redisSite struct {
	redis    *redistest.Redis
	link     *faults.Proxy // in front of it, if set
	addrs    []string      // instead of the server's
	user     string        // with the password "secret"
	database int
	fifo     bool
	cfg      redislock.Config
}

// openRedis opens the engine on the client of the row.
func (s *site) openRedis() {
	addrs := s.addrs
	switch {
	case s.link != nil:
		addrs = []string{s.link.Addr()}
	case addrs == nil:
		addrs = []string{s.redis.Addr()}
	}
	password := ""
	if s.user != "" {
		password = "secret"
	}
	var e *redislock.Engine
	if s.client == "go-redis" {
		client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, Username: s.user, Password: password, DB: s.database, PoolFIFO: s.fifo})
		s.Cleanup(func() { _ = client.Close() })
		e = goredis.New(client, &s.cfg)
	} else {
		o := rueidis.ClientOption{InitAddress: addrs, DisableCache: true, ConnWriteTimeout: 3 * time.Second, RingScaleEachConn: 5,
			Username: s.user, Password: password, SelectDB: s.database, ForceSingleClient: len(addrs) == 1}
		client, err := rueidis.NewClient(o)
		must(s.T, err)
		s.Cleanup(client.Close)
		e = redislock.New(client, &s.cfg)
	}
	s.Cleanup(func() { _ = e.Close() })
	s.engine = e
}

// server starts a Redis server and then runs commands on it.
func server(args []string, commands ...string) func(*site) {
	return func(s *site) {
		s.redis = redistest.StartRedis(s.T, args...)
		does(commands...)(s)
	}
}

// does runs commands on the server.
func does(commands ...string) func(*site) {
	return func(s *site) {
		for _, c := range commands {
			s.redis.Do(s.T, strings.Fields(c)...)
		}
	}
}

// user starts a server and logs in as a user with all rights but some.
func user(rules string) func(*site) {
	return func(s *site) {
		server(nil, "ACL SETUSER app on >secret ~* &* +@all "+rules)(s)
		s.user = "app"
	}
}

// linked starts a server behind a proxy.
func linked(s *site) {
	s.redis = redistest.StartRedis(s.T)
	s.link = s.proxy(s.redis.Addr())
}

// configured starts a server and an engine with a configuration.
func configured(cfg redislock.Config, args ...string) func(*site) {
	return func(s *site) {
		s.redis, s.cfg = redistest.StartRedis(s.T, args...), cfg
	}
}

// throughHAProxy puts HAProxy before a server. It ends idle connections after a second.
func throughHAProxy(s *site) {
	s.redis = redistest.StartRedis(s.T)
	port := hosttest.FreePort(s.T)
	s.addrs = []string{fmt.Sprintf("127.0.0.1:%d", port)}
	path, _ := program("haproxy", "/usr/sbin/haproxy")
	s.daemon(path, []string{"-db", "-q", "-f"}, "haproxy.cfg", fmt.Sprintf(`defaults
  mode tcp
  timeout connect 1s
  timeout client 1s
  timeout server 1s
listen redis
  bind 127.0.0.1:%d
  server one %s
`, port, s.redis.Addr()))
}

// throughTwemproxy puts twemproxy before a server.
func throughTwemproxy(s *site) {
	s.redis = redistest.StartRedis(s.T)
	port := hosttest.FreePort(s.T)
	s.addrs = []string{fmt.Sprintf("127.0.0.1:%d", port)}
	path, _ := program("nutcracker", "/usr/sbin/nutcracker")
	s.daemon(path, []string{"-a", "127.0.0.1", "-s", fmt.Sprint(hosttest.FreePort(s.T)), "-c"}, "nutcracker.yml", fmt.Sprintf(`redis:
  listen: 127.0.0.1:%d
  redis: true
  servers:
   - %s:1
`, port, s.redis.Addr()))
}

// daemon runs a program with a configuration, until the end of the row, and waits until it listens.
func (s *site) daemon(path string, args []string, file, text string) {
	file = filepath.Join(hosttest.Dir(s.T, "fencelock-environment-"), file)
	must(s.T, os.WriteFile(file, []byte(text), 0o600))
	cmd := exec.Command(path, append(args, file)...)
	must(s.T, cmd.Start())
	s.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	})
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("tcp", s.addrs[0]); err == nil {
			_ = conn.Close()
			return
		}
	}
	s.Fatal(path + " does not listen")
}

func needs(names ...string) func(string) string {
	return func(string) string { _, missing := program(names...); return missing }
}

// failedSave makes the next save of a server fail, and waits until it refuses writes.
func failedSave(s *site) {
	dump := filepath.Join(s.redis.Dir(), "dump")
	must(s.T, os.Mkdir(dump, 0o777))
	s.Cleanup(func() { _ = os.Remove(dump) })
	s.redis.Do(s.T, "BGSAVE")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := s.redis.TryDo("SET", "k", "v"); err != nil && strings.HasPrefix(err.Error(), "MISCONF") {
			return
		}
	}
	s.Fatal("the save has not failed")
}

// full lets no more clients in, and ends the connections of those that are there.
func full(s *site) {
	s.redis.Do(s.T, "CONFIG", "SET", "maxclients", "4")
	s.redis.Do(s.T, "CLIENT", "KILL", "TYPE", "normal")
	for range 8 {
		conn, err := net.Dial("tcp", s.redis.Addr())
		must(s.T, err)
		s.Cleanup(func() { _ = conn.Close() })
	}
}

// ofCluster is a node of a Cluster that is asked as if it were alone, for a name of another node.
func ofCluster(s *site) {
	c := redistest.StartRedisCluster(s.T, 3)
	owner := c.Owner(s.T, c.Slot(s.T, "lock:n"))
	s.redis = c.Nodes()[(slices.Index(c.Nodes(), owner)+1)%3]
}

// silentMaster is a Cluster of which a master that does not have the name is silent.
func silentMaster(s *site) {
	c := redistest.StartRedisCluster(s.T, 3, "--cluster-node-timeout", "60000")
	owner := c.Owner(s.T, c.Slot(s.T, "lock:n"))
	s.addrs = c.Addrs()
	s.redis = c.Nodes()[(slices.Index(c.Nodes(), owner)+1)%3]
}

func frozen(s *site) {
	s.redis.Freeze(s.T)
	s.Cleanup(func() { s.redis.Thaw(s.T) })
}

// redisRows are the environments of Redis.
func redisRows() []row {
	rows := slices.Clone(redisEnvironments)
	for _, command := range []string{"EVAL", "EVALSHA", "SET", "EXISTS", "TIME", "MGET", "DEL", "PEXPIRE"} {
		rows = append(rows, row{name: "no command " + command, start: server([]string{"--rename-command", command, ""}), want: driver.ErrConfig, words: command})
	}
	for _, command := range []string{"ZADD", "ZREVRANGE", "PTTL", "GET", "SUBSCRIBE"} {
		rows = append(rows, row{name: "no command " + command + ", contended", start: server([]string{"--rename-command", command, ""}), act: queue, want: driver.ErrConfig, words: command})
	}
	for _, command := range []string{"PUBLISH", "INFO", "CONFIG", "SCAN", "CLIENT", "SCRIPT", "HELLO", "PING"} {
		rows = append(rows, row{name: "no command " + command + ", contended", start: server([]string{"--rename-command", command, ""}), act: queue, most: 3 * time.Second})
	}
	return rows
}

var redisEnvironments = []row{
	{name: "Redis", start: server(nil)},
	{name: "Redis, contended", start: server(nil), act: queue},
	{name: "user without SET", start: user("-set"), want: driver.ErrConfig, words: "command SET"},
	{name: "user without EVALSHA", start: user("-evalsha"), want: driver.ErrConfig, words: "NOPERM"},
	{name: "user without the keys", start: user("resetkeys ~other:*"), want: driver.ErrConfig, words: "NOPERM"},
	{name: "user without channels, contended", start: user("resetchannels"), act: queue, want: driver.ErrConfig, words: "channel"},
	{name: "user without PUBLISH, contended", start: user("-publish"), act: queue, most: 3 * time.Second},
	{name: "password changed", start: user(""), fault: does("ACL SETUSER app resetpass >other", "CLIENT KILL USER app"), want: driver.ErrUnavailable, words: "WRONGPASS", most: redisPatience},
	{name: "a save has failed", start: server([]string{"--save", "3600 1", "--dbfilename", "dump"}), fault: failedSave, want: driver.ErrUnavailable, words: "MISCONF", most: redisPatience},
	{name: "maxclients", start: server(nil), fault: full, want: driver.ErrUnavailable, most: redisPatience},
	{name: "memory is full, noeviction", start: server(nil, "CONFIG SET maxmemory 1"), want: driver.ErrUnavailable, words: "OOM"},
	{name: "eviction policy", start: server([]string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}), want: driver.ErrConfig, words: "maxmemory-policy"},
	{name: "a replica", start: server(nil, "REPLICAOF 127.0.0.1 1"), want: driver.ErrUnavailable, words: "READONLY", most: redisPatience},
	{name: "too few replicas", start: server(nil, "CONFIG SET min-replicas-to-write 1"), want: driver.ErrUnavailable, words: "NOREPLICAS", most: redisPatience},
	{name: "min-replicas without replicas", start: configured(redislock.Config{MinReplicas: 1}), want: driver.ErrUnavailable, words: "replica", most: redisPatience},
	{name: "server is frozen", start: server(nil), fault: frozen, want: driver.ErrUnavailable, words: "no answer", most: redisPatience},
	{name: "server is frozen, 100 ms to wait", start: server(nil), fault: frozen, act: briefly, want: context.DeadlineExceeded},
	{name: "server is down", start: server(nil), fault: func(s *site) { s.redis.Kill(s.T) }, want: driver.ErrUnavailable, words: "connection refused", most: redisPatience},
	{name: "CLIENT PAUSE", start: server(nil), fault: does("CLIENT PAUSE 60000 ALL"), want: driver.ErrUnavailable, words: "no answer", most: redisPatience},
	{name: "a script runs", start: server([]string{"--busy-reply-threshold", "50"}), fault: busy, want: driver.ErrUnavailable, words: "BUSY", most: redisPatience},
	{name: "SCRIPT FLUSH", start: server(nil), fault: does("SCRIPT FLUSH"), act: queue},
	{name: "FLUSHALL while held", start: server(nil), act: survives(does("FLUSHALL")), want: driver.ErrNotHeld},
	{name: "a NAT drops all connections", start: linked, act: survives(func(s *site) { silence(s.link) }), most: 8 * time.Second},
	{name: "a NAT drops all connections, PoolFIFO", start: func(s *site) { linked(s); s.fifo = true }, act: survives(func(s *site) { silence(s.link) }), most: 8 * time.Second},
	{name: "the network is silent", start: linked, fault: func(s *site) { s.link.Stall(faults.Both) }, want: driver.ErrUnavailable, words: "no answer", most: redisPatience},
	{name: "a round trip of 300 ms, contended", start: linked, fault: func(s *site) { s.link.Delay(faults.Both, 150*time.Millisecond) }, act: queue, most: 4 * time.Second},
	{name: "connections are reset while held", start: linked, act: survives(func(s *site) { s.link.Reset() })},
	{name: "HAProxy", start: throughHAProxy, skip: needs("haproxy", "/usr/sbin/haproxy")},
	{name: "HAProxy ends idle connections, contended", start: throughHAProxy, act: waiting(3 * time.Second), most: 6 * time.Second, skip: needs("haproxy", "/usr/sbin/haproxy")},
	{name: "HAProxy, the server is down", start: throughHAProxy, fault: func(s *site) { s.redis.Kill(s.T) }, want: driver.ErrUnavailable, most: redisPatience, skip: needs("haproxy", "/usr/sbin/haproxy")},
	{name: "twemproxy, contended", start: throughTwemproxy, act: queue, want: driver.ErrUnavailable, words: "redis at", most: redisPatience, skip: func(client string) string {
		if client == "rueidis" {
			return "the client does not connect, as twemproxy passes on no HELLO"
		}
		return needs("nutcracker", "/usr/sbin/nutcracker")("")
	}},
	{name: "a node of a Cluster as if it were alone", start: ofCluster, want: driver.ErrUnavailable, words: "MOVED", most: redisPatience},
	{name: "a Cluster with a silent master", start: silentMaster, fault: frozen, act: queue},
	{name: "quarantine after a restart", start: configured(redislock.Config{Quarantine: true}), want: driver.ErrUnavailable, words: "may have lost its data"},
	{name: "quarantine on a Cluster", start: func(s *site) { silentMaster(s); s.cfg.Quarantine = true }, want: driver.ErrUnsupported},
	{name: "a prefix that collides", start: configured(redislock.Config{Prefix: "lock:"}), want: driver.ErrConfig, words: "prefix"},
	{name: "the server's clock is an hour behind", start: clocked(-time.Hour), act: queue},
	{name: "the server's clock is set back while held", start: clocked(0), act: survives(func(s *site) { s.clock.Set(-time.Hour) })},
}

// busy makes the server run a script for a while.
func busy(s *site) {
	go func() { // ends with the script, which is killed at the end of the row
		_, _ = s.redis.TryDo("EVAL", "while true do end", "0")
	}()
	s.Cleanup(func() { _, _ = s.redis.TryDo("SCRIPT", "KILL") })
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := s.redis.TryDo("PING"); err != nil && strings.HasPrefix(err.Error(), "BUSY") {
			return
		}
	}
	s.Fatal("the server is not busy")
}

// clocked starts a server whose clock is ahead of the machine's.
func clocked(ahead time.Duration) func(*site) {
	return func(s *site) {
		s.clock = hosttest.NewClock(s.T)
		s.clock.Set(ahead)
		s.redis = redistest.StartRedisBy(s.T, s.clock)
	}
}
