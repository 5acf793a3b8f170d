package redislock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
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
	scene{TB: t, server: r}.leftNothing()
}

// leftNothing fails the test if an inspection has left a key. Its record lives for a second.
func (s scene) leftNothing() {
	s.Helper()
	s.until("nothing is left", func() bool { return len(s.keys()) == 0 })
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

// TestInspectMissingCommand: without a command that the scripts use something fails, and the
// rule that is told then is enough. Nothing stays for ever, nor locked.
func TestInspectMissingCommand(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, command := range scriptCommands(t) {
		s.server.Do(t, "FLUSHALL")
		s.server.Do(t, "ACL", "SETUSER", "bob", "reset", "on", ">secret", "~*", "&*", "+@all", "-"+command)
		quarantine := &redislock.Config{Quarantine: true}
		if err := s.engine(quarantine).Init(t.Context()); err != nil {
			t.Fatal(err)
		}
		fix := ""
		for _, cfg := range []*redislock.Config{nil, quarantine} {
			for _, f := range findingsAs(t, s.server, "bob", "secret", cfg) {
				if f.Severity > driver.Good && strings.HasPrefix(f.Fix, "ACL SETUSER") {
					fix = f.Fix
				}
			}
		}
		if fix == "" {
			t.Errorf("without %s doctor does not say what to do", command)
		}
		s.expiring()
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
		rules    []string
		replicas int
		check    string
		want     driver.Severity
		saw      string
	}{
		{[]string{"~*", "&*", all, "-evalsha", "-eval"}, 0, "probe lock", driver.Broken, "NOPERM"},
		{[]string{"~lock:*", "&*", all}, 0, "probe lock", driver.Broken, "key"},
		{[]string{"~*", "&*", all, "-wait"}, 1, "probe lock", driver.Broken, "NOPERM"},
		{[]string{"~*", "resetchannels", all}, 0, "rights", driver.Broken, "waiting: "},
		{[]string{"~*", "&*", all, "-subscribe"}, 0, "rights", driver.Broken, "waiting: "},
		{[]string{"~lock:*", "~fencelock:2:*", "~fencelock:names*", "&*", all}, 0, "rights", driver.Broken, "records ("},
		{[]string{"~*", "&*", all, "-info"}, 0, "server", driver.Unknown, "NOPERM"},
	} {
		r.Do(t, append([]string{"ACL", "SETUSER", "bob", "reset", "on", ">secret"}, c.rules...)...)
		found := findingsAs(t, r, "bob", "secret", &redislock.Config{MinReplicas: c.replicas})
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

// TestGrantIsTheDocumentedRule: what an inspection tells people to grant is what the page says.
func TestGrantIsTheDocumentedRule(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t)
	r.Do(t, "ACL", "SETUSER", "bob", "on", ">secret", "~*", "&*", "+@all", "-set")
	got := strings.Fields(findingsAs(t, r, "bob", "secret", nil)["probe lock"].Fix)
	want := slices.DeleteFunc(documentedRule(t), func(word string) bool { return slices.Contains([]string{"on", ">PASSWORD", "resetchannels"}, word) })
	if want[2] = "name"; !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("do %q, and the page says %q", got, want)
	}
}

// It is enough for everything but CONFIG.
func TestInspectDocumentedRule(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	r.Do(t, documentedRule(t)...)
	for _, cfg := range []*redislock.Config{nil, {Quarantine: true}} {
		if err := (scene{TB: t, server: r}).engine(cfg).Init(t.Context()); err != nil {
			t.Fatal(err)
		}
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

func TestInspectReplicas(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t)
	wantFinding(t, findings(t, r, nil), "replicas", driver.Good, "none")
	replica := redistest.StartRedisReplica(t, r)
	replica.WaitLink(t)
	wantFinding(t, findings(t, r, nil), "replicas", driver.Warning, "1, min-replicas-to-write 0")
	cutOff := findings(t, r, &redislock.Config{Quarantine: true})
	wantFinding(t, cutOff, "replicas", driver.Warning, "min-replicas-to-write 0")
	wantFinding(t, cutOff, "probe lock", driver.Broken, "CONFIG SET min-replicas-to-write 1")
	r.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	wantFinding(t, findings(t, r, &redislock.Config{Quarantine: true, ReplicaLag: time.Second}), "probe lock", driver.Broken, "replica-lag=10s")
	wantFinding(t, findings(t, r, &redislock.Config{Quarantine: true, ReplicaLag: 10 * time.Second}), "replicas", driver.Good, "quarantine")
	found := findings(t, replica, nil)
	wantFinding(t, found, "server", driver.Broken, "slave of 127.0.0.1:")
	wantFinding(t, found, "probe lock", driver.Broken, "READONLY")
}

// TestInspectRefusedWrites: a server that takes no writes is shown by its own words.
func TestInspectRefusedWrites(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t)
	r.Do(t, "CONFIG", "SET", "maxmemory", "1")
	wantFinding(t, findings(t, r, nil), "probe lock", driver.Broken, "OOM")
}

func TestInspectCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	list, err := inspect(t, rueidis.ClientOption{InitAddress: c.Addrs()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := byCheck(t, list)
	wantFinding(t, found, "probe lock", driver.Good, "acquired")
	wantFinding(t, found, "server", driver.Good, "and good on 2 more")
	c.Nodes()[1].Do(t, "CONFIG", "SET", "maxmemory", "100mb")
	c.Nodes()[1].Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	if list, err = inspect(t, rueidis.ClientOption{InitAddress: c.Addrs()}, nil); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, byCheck(t, list), "eviction", driver.Broken, c.Nodes()[1].Addr()+": maxmemory-policy allkeys-lru")
	wantFinding(t, findings(t, c.Nodes()[0], nil), "server", driver.Broken, "as if it were alone")
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
type told struct{ info string }

func (c told) Eval(_ context.Context, calls []redisconn.Call) []redisconn.Reply {
	return redisconn.Failures(len(calls), redisconn.ServerError{Text: "ERR no scripts here"})
}

func (c told) Subscribe(ctx context.Context, _ string, ready func(), _ func(string)) error {
	ready()
	return ctx.Err()
}

func (c told) Scan(context.Context, time.Duration, string, func([]string) error) error { return nil }

func (c told) Cluster() bool { return false }

func (c told) Each(_ context.Context, args ...string) ([]redisconn.Answer, error) {
	return []redisconn.Answer{{Node: "one:6379", Text: map[string]string{"INFO": c.info}[args[0]]}}, nil
}

// Servers that no test can start here.
func TestInspectOthers(t *testing.T) {
	t.Parallel()
	const all = "\nrole:master\nmaxmemory:0\nconnected_slaves:0\naof_enabled:1"
	for _, c := range []struct {
		info, saw string
		want      driver.Severity
	}{
		{"redis_version:6.0.16" + all, "redis 6.0.16", driver.Broken},
		{"redis_version:6.2.0" + all, "redis 6.2.0", driver.Good},
		{"redis_version:7.2.4\nvalkey_version:8.0.1" + all, "valkey 8.0.1", driver.Good},
		{"redis_version:7.4.0\ndragonfly_version:df-v1.30" + all, "dragonfly df-v1.30", driver.Warning},
		{"redis_version:6.3.4\nexecutable:/usr/bin/keydb-server" + all, "keydb 6.3.4", driver.Warning},
		{"redis_version:6.3.4\nrole:active-replica", "active-replica", driver.Broken},
	} {
		list, err := redislock.NewConn(told{c.info}, nil).Inspect(t.Context(), 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		found := byCheck(t, list)
		wantFinding(t, found, "server", c.want, c.saw)
		wantFinding(t, found, "probe lock", driver.Broken, "no scripts here")
	}
}
