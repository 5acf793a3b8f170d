package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/rueidis"
)

// inspect examines a server through an engine of its own.
func inspect(t *testing.T, opt rueidis.ClientOption, cfg *redislock.Config) ([]driver.Finding, error) {
	t.Helper()
	opt.DisableCache, opt.ForceSingleClient = true, len(opt.InitAddress) == 1
	client, err := connect(opt)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	engine := redislock.New(client, cfg)
	defer func() { _ = engine.Close() }()
	return engine.Inspect(t.Context(), 30*time.Second)
}

// findings examines a server that can be examined, by check.
func findings(t *testing.T, r *redistest.Redis, cfg *redislock.Config) map[string]driver.Finding {
	t.Helper()
	return findingsAs(t, r, "", "", cfg)
}

// findingsAs is findings as a user of the server.
func findingsAs(t *testing.T, r *redistest.Redis, user, password string, cfg *redislock.Config) map[string]driver.Finding {
	t.Helper()
	list, err := inspect(t, rueidis.ClientOption{InitAddress: []string{r.Addr()}, Username: user, Password: password}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return byCheck(t, list)
}

func byCheck(t *testing.T, list []driver.Finding) map[string]driver.Finding {
	t.Helper()
	found := map[string]driver.Finding{}
	for _, f := range list {
		if _, twice := found[f.Check]; twice {
			t.Errorf("%q was found twice", f.Check)
		}
		if f.Observed == "" || (f.Severity == driver.Good) != (f.Impact == "" && f.Fix == "") {
			t.Errorf("incomplete finding %+v", f)
		}
		found[f.Check] = f
	}
	return found
}

// wantFinding checks the severity of a finding, and that it saw something.
func wantFinding(t *testing.T, found map[string]driver.Finding, check string, severity driver.Severity, saw string) {
	t.Helper()
	f, ok := found[check]
	if !ok || f.Severity != severity || !strings.Contains(f.Observed, saw) {
		t.Errorf("%s: found %v %+v, want %v, %q", check, f.Severity, f, severity, saw)
	}
}

func TestInspectGood(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	for check, f := range findings(t, r, nil) {
		if f.Severity != driver.Good {
			t.Errorf("%s: %v %+v", check, f.Severity, f)
		}
	}
	if keys := r.Do(t, "KEYS", "*"); keys != "" {
		t.Errorf("the inspection left %q", keys)
	}
}

func TestInspectEviction(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t)
	wantFinding(t, findings(t, r, nil), "eviction", driver.Good, "no maxmemory")
	r.Do(t, "CONFIG", "SET", "maxmemory", "100mb")
	wantFinding(t, findings(t, r, nil), "eviction", driver.Good, "noeviction")
	for _, policy := range []string{"allkeys-lru", "volatile-ttl"} {
		r.Do(t, "CONFIG", "SET", "maxmemory-policy", policy)
		wantFinding(t, findings(t, r, nil), "eviction", driver.Broken, policy)
		wantFinding(t, findings(t, r, &redislock.Config{AllowEviction: true}), "eviction", driver.Broken, policy)
	}
}

func TestInspectPersistence(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t)
	for _, c := range []struct {
		set  [][]string
		want driver.Severity
		saw  string
	}{
		{nil, driver.Warning, "none"},
		{[][]string{{"save", "3600 1"}}, driver.Warning, "save 3600 1"},
		{[][]string{{"appendonly", "yes"}, {"appendfsync", "everysec"}}, driver.Warning, "everysec"},
		{[][]string{{"appendfsync", "always"}}, driver.Good, "synced before every answer"},
	} {
		for _, s := range c.set {
			r.Do(t, "CONFIG", "SET", s[0], s[1])
		}
		wantFinding(t, findings(t, r, nil), "persistence", c.want, c.saw)
		wantFinding(t, findings(t, r, &redislock.Config{Quarantine: true}), "persistence", driver.Good, c.saw)
	}
}

// Each command that the scripts use is probed, and named when it is missing.
func TestInspectNamesTheMissingCommand(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t)
	for _, command := range scriptCommands(t) {
		r.Do(t, "ACL", "SETUSER", "bob", "reset", "on", ">secret", "~*", "&*", "+@all", "-"+command)
		found := findingsAs(t, r, "bob", "secret", &redislock.Config{Quarantine: true})
		check, want := "rights", driver.Broken
		if command == "PUBLISH" || command == "ZSCAN" {
			check, want = "notices", driver.Warning
		}
		wantFinding(t, found, check, want, "no right to run "+command)
		if do := found[check].Fix; !strings.Contains(do, "+"+strings.ToLower(command)) {
			t.Errorf("%s: do %q", command, do)
		}
		wantFinding(t, found, "writes", driver.Good, "accepted")
		for key := range strings.FieldsSeq(r.Do(t, "KEYS", "*")) {
			if r.Do(t, "PTTL", key) == "-1" {
				t.Errorf("without %s, %s was left for ever", command, key)
			}
		}
	}
}

// scriptCommands is every command in the scripts of the locks.
func scriptCommands(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	var commands []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\bp?call\('([A-Z]+)'`).FindAllStringSubmatch(string(text), -1) {
			commands = append(commands, m[1])
		}
	}
	slices.Sort(commands)
	return slices.Compact(commands)
}

func TestInspectRightsOutsideTheScripts(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t)
	const all = "+@all"
	for _, c := range []struct {
		rules []string
		check string
		want  driver.Severity
		saw   string
	}{
		{[]string{"~*", "&*", all, "-evalsha", "-eval"}, "rights", driver.Broken, "no right to run EVAL"},
		{[]string{"~lock:*", "&*", all}, "rights", driver.Broken, "no right to some of the keys"},
		{[]string{"~*", "resetchannels", all}, "notices", driver.Warning, "no right to the channels"},
		{[]string{"~*", "&*", all, "-subscribe"}, "notices", driver.Warning, "no right to run SUBSCRIBE"},
		{[]string{"~*", "&*", all, "-scan"}, "notices", driver.Warning, "no right to run SCAN"},
		{[]string{"~*", "&*", all, "-info"}, "eviction", driver.Unknown, "NOPERM"},
		{[]string{"~*", "&*", all, "-info"}, "role", driver.Unknown, "NOPERM"},
		{[]string{"~*", "&*", all, "-ping"}, "latency", driver.Unknown, "NOPERM"},
		{[]string{"~*", "&*", all, "-time"}, "clock", driver.Unknown, "NOPERM"},
		{[]string{"~*", "&*", all, "-wait"}, "rights", driver.Broken, "no right to run WAIT"},
	} {
		r.Do(t, append([]string{"ACL", "SETUSER", "bob", "reset", "on", ">secret"}, c.rules...)...)
		found := findingsAs(t, r, "bob", "secret", &redislock.Config{MinReplicas: 1})
		wantFinding(t, found, c.check, c.want, c.saw)
	}
}

// documentedRule is the ACL rule that docs/engines/redis.md tells users to write.
func documentedRule(t *testing.T) []string {
	t.Helper()
	doc, err := os.ReadFile("../docs/engines/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	rule := regexp.MustCompile(`ACL SETUSER locks on >PASSWORD (.*)`).FindSubmatch(doc)
	if rule == nil {
		t.Fatal("no rule in docs/engines/redis.md")
	}
	return append([]string{"ACL", "SETUSER", "locks", "on", ">PASSWORD"}, strings.Fields(string(rule[1]))...)
}

// It is enough for everything but CONFIG.
func TestInspectDocumentedRule(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	r.Do(t, documentedRule(t)...)
	for _, cfg := range []*redislock.Config{nil, {Quarantine: true}} {
		wantEnough(t, findingsAs(t, r, "locks", "PASSWORD", cfg))
	}
	c := redistest.StartRedisCluster(t, 3, "--appendonly", "yes", "--appendfsync", "always")
	for _, node := range c.Nodes() {
		node.Do(t, append(documentedRule(t), "+cluster", "+asking")...)
	}
	list, err := inspect(t, rueidis.ClientOption{InitAddress: c.Addrs(), Username: "locks", Password: "PASSWORD"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantEnough(t, byCheck(t, list))
}

func wantEnough(t *testing.T, found map[string]driver.Finding) {
	t.Helper()
	for check, f := range found {
		if f.Severity > driver.Unknown || f.Severity == driver.Unknown && !strings.Contains(f.Observed+f.Fix, "config|get") {
			t.Errorf("%s: %v %+v", check, f.Severity, f)
		}
	}
}

// A waiter gets in, and locks can be listed and broken, under the documented
// rule.
func TestDocumentedRuleIsEnoughForLocks(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t)
	r.Do(t, documentedRule(t)...)
	client, err := connect(rueidis.ClientOption{
		InitAddress: []string{r.Addr()}, Username: "locks", Password: "PASSWORD", DisableCache: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	engine := redislock.New(client, patient(nil))
	defer func() { _ = engine.Close() }()
	s := scene{TB: t, server: r}
	held := s.hold(engine, request("x"))
	w := s.queue(engine, request("x"))
	held.free()
	w.kept()
	if got := s.listed(engine, driver.Query{Scan: true}); len(got) != 1 {
		t.Errorf("listed: %q", got)
	}
	s.lists(engine, driver.Query{}, "x")
	s.resize(engine, "x", 2)
	if token, err := engine.Break(t.Context(), "x", "test"); err != nil || token <= held.Token {
		t.Errorf("Break: %d, %v", token, err)
	}
}

// TestInspectNewerWords: Redis from 7.2 on and Valkey say in other words that a right
// is missing.
func TestInspectNewerWords(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	for _, c := range []struct{ right, check, saw, words, newer string }{
		{"-zadd", "rights", "no right to run ZADD", "The user executing the script can't run this command or subcommand", "ACL failure in script: User app has no permissions to run the 'zadd' command"},
		{"resetkeys", "rights", "no right to some of the keys", "The user executing the script can't access at least one of the keys mentioned in the command arguments", "ACL failure in script: No permissions to access a key"},
		{"resetchannels", "notices", "no right to the channels", "The user executing the script can't publish to the channel mentioned in the command", "ACL failure in script: No permissions to access a channel"},
	} {
		s.server.Do(t, "ACL", "SETUSER", "default", "on", "~*", "&*", "+@all", c.right)
		if c.right == "resetkeys" {
			s.server.Do(t, "ACL", "SETUSER", "default", "~fencelock:none")
		}
		said := false
		tap.calls(func(call redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
			r := do()
			said = said || strings.Contains(r.Text, c.words)
			r.Text = strings.ReplaceAll(r.Text, c.words, c.newer)
			if e, ok := errors.AsType[redisconn.ServerError](r.Err); ok && c.right == "resetkeys" {
				said, r.Err = strings.HasPrefix(e.Text, "NOPERM"), redisconn.ServerError{Text: "NOPERM No permissions to access a key"}
			}
			return r
		})
		found, err := e.Inspect(t.Context(), time.Minute)
		if err != nil || !said {
			t.Fatalf("%s: %v, in the words %q: %v", c.right, err, c.words, said)
		}
		i := slices.IndexFunc(found, func(f driver.Finding) bool { return f.Check == c.check })
		if found[i].Severity < driver.Warning || !strings.Contains(found[i].Observed, c.saw) {
			t.Errorf("%s: %+v", c.right, found[i])
		}
	}
}

func TestInspectReplicas(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t)
	wantFinding(t, findings(t, r, nil), "replicas", driver.Good, "none")
	replica := redistest.StartRedisReplica(t, r)
	replica.WaitLink(t)
	wantFinding(t, findings(t, r, nil), "replicas", driver.Warning, "1, min-replicas-to-write 0")
	wantFinding(t, findings(t, r, &redislock.Config{Quarantine: true}), "replicas", driver.Broken, "min-replicas-to-write 0")
	r.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	wantFinding(t, findings(t, r, &redislock.Config{Quarantine: true, ReplicaLag: time.Second}), "replicas", driver.Broken, "max-lag 10 s")
	wantFinding(t, findings(t, r, &redislock.Config{Quarantine: true, ReplicaLag: 10 * time.Second}), "replicas", driver.Good, "quarantine")
	found := findings(t, replica, nil)
	wantFinding(t, found, "role", driver.Broken, "a replica of 127.0.0.1:")
	wantFinding(t, found, "writes", driver.Broken, "READONLY")
	wantFinding(t, found, "rights", driver.Good, "allowed")
}

func TestInspectWrites(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t)
	r.Do(t, "CONFIG", "SET", "maxmemory", "1")
	wantFinding(t, findings(t, r, nil), "writes", driver.Broken, "OOM")
	wantFinding(t, findings(t, r, nil), "eviction", driver.Warning, "used")
	r.Do(t, "CONFIG", "SET", "maxmemory", "0")
	r.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	wantFinding(t, findings(t, r, nil), "writes", driver.Broken, "NOREPLICAS")
}

func TestInspectCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	list, err := inspect(t, rueidis.ClientOption{InitAddress: c.Addrs()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := byCheck(t, list)
	wantFinding(t, found, "cluster", driver.Good, "state ok, 16384 of 16384 slots served, 3 masters")
	wantFinding(t, found, "role", driver.Good, "master, on 3 masters")
	c.Nodes()[1].Do(t, "CONFIG", "SET", "maxmemory", "100mb")
	c.Nodes()[1].Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	if list, err = inspect(t, rueidis.ClientOption{InitAddress: c.Addrs()}, nil); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, byCheck(t, list), "eviction", driver.Broken, "allkeys-lru on "+c.Nodes()[1].Addr())
	wantFinding(t, findings(t, c.Nodes()[0], nil), "cluster", driver.Broken, "as if it were alone")
}

func TestInspectUnreachable(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t)
	client := dial(r.Addr())
	defer client.Close()
	engine := redislock.New(client, nil)
	defer func() { _ = engine.Close() }()
	r.Kill(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := engine.Inspect(ctx, time.Second); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// told is a Conn that answers as a server would that cannot be started here.
type told struct {
	info, offset string
	delay        time.Duration
}

func (c told) Eval(_ context.Context, calls []redisconn.Call) []redisconn.Reply {
	return make([]redisconn.Reply, len(calls))
}

func (c told) Subscribe(ctx context.Context, _ string, ready func(), _ func(string)) error {
	ready()
	return ctx.Err()
}

func (c told) Scan(context.Context, string, func([]string) error) error { return nil }

func (c told) Cluster() bool { return false }

func (c told) Each(_ context.Context, args ...string) ([]redisconn.Answer, error) {
	a := redisconn.Answer{Node: "one:6379"}
	switch args[0] {
	case "INFO":
		a.Text = c.info
	case "PING":
		time.Sleep(c.delay)
	case "TIME":
		offset, err := time.ParseDuration(c.offset)
		if err != nil {
			return nil, err
		}
		now := time.Now().Add(offset)
		a.Text = fmt.Sprintf("%d\n%d", now.Unix(), now.Nanosecond()/1000)
	}
	return []redisconn.Answer{a}, nil
}

// Servers and clocks that no test can start here.
func TestInspectOthers(t *testing.T) {
	t.Parallel()
	const all = "\nrole:master\nmaxmemory:0\nconnected_slaves:0\naof_enabled:1"
	for _, c := range []struct {
		conn       told
		check, saw string
		want       driver.Severity
	}{
		{told{info: "redis_version:6.0.16" + all}, "version", "redis 6.0.16", driver.Broken},
		{told{info: "redis_version:6.2.0" + all}, "version", "redis 6.2.0", driver.Good},
		{told{info: "redis_version:7.2.4\nvalkey_version:8.0.1" + all}, "version", "valkey 8.0.1", driver.Good},
		{told{info: "redis_version:7.4.0\ndragonfly_version:df-v1.30" + all}, "version", "dragonfly df-v1.30", driver.Warning},
		{told{info: "redis_version:6.3.4\nexecutable:/usr/bin/keydb-server" + all}, "version", "keydb 6.3.4", driver.Warning},
		{told{info: "redis_version:unstable" + all}, "version", "redis unstable", driver.Unknown},
		{told{info: "redis_version:6.3.4\nrole:active-replica"}, "role", "active-replica", driver.Broken},
		{told{info: all, offset: "3s"}, "clock", "the server is ahead by 3", driver.Warning},
		{told{info: all, offset: "-3s"}, "clock", "the server is behind by ", driver.Warning},
		{told{info: all, offset: "0s"}, "clock", "give or take", driver.Good},
		{told{info: all, delay: 3 * time.Second}, "latency", "p50 3s", driver.Warning},
		{told{info: all, delay: 6 * time.Second}, "latency", "p50 6s", driver.Broken},
		{told{info: all, delay: time.Second}, "latency", "p50 1s", driver.Good},
	} {
		synctest.Test(t, func(t *testing.T) {
			if c.conn.offset == "" {
				c.conn.offset = "0s"
			}
			engine := redislock.NewConn(c.conn, nil)
			list, err := engine.Inspect(t.Context(), 30*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			wantFinding(t, byCheck(t, list), c.check, c.want, c.saw)
		})
	}
}
