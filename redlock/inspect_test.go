package redlock_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redlock"
)

// findings inspects the nodes, by check.
func findings(t *testing.T, addrs []string, cfg redlock.Config) map[string]driver.Finding {
	t.Helper()
	e := open(t, addrs, cfg)
	var list []driver.Finding
	eventually(t, "an answer of a node in time", func() bool {
		var err error
		if list, err = e.Inspect(t.Context(), 30*time.Second); err != nil && !errors.Is(err, driver.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	found := map[string]driver.Finding{}
	for _, f := range list {
		if f.Observed == "" || (f.Severity == driver.Good) != (f.Impact == "" && f.Fix == "") {
			t.Errorf("incomplete finding %+v", f)
		}
		found[f.Check] = f
	}
	return found
}

// expect fails the test unless the check was judged so, with a word to say.
func expect(t *testing.T, found map[string]driver.Finding, check string, want driver.Severity, says string) {
	t.Helper()
	if f := found[check]; f.Severity != want || !strings.Contains(f.Observed, says) {
		t.Errorf("%s: got %v, %q; want %v that says %q", check, f.Severity, f.Observed, want, says)
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 5)
	var found map[string]driver.Finding
	eventually(t, "an answer of each node in time", func() bool {
		found = findings(t, w.addrs(), redlock.Config{})
		return found["probe lock"].Severity == driver.Good && found["latency"].Severity == driver.Good
	})
	expect(t, found, "nodes", driver.Good, "5 of 5")
	expect(t, found, "independence", driver.Good, "separate server")
	expect(t, found, "rights", driver.Good, "everything")
	expect(t, found, "eviction", driver.Good, "no maxmemory")
	expect(t, found, "persistence", driver.Good, "none; quarantine")
	expect(t, found, "clocks", driver.Good, "apart")
	eventually(t, "nothing is left but the node's marker", func() bool { return w[0].Do(t, "KEYS", "*") == "fencelock:node" })

	w[0].Kill(t)
	w[1].Restart(t)
	w[2].Do(t, "CONFIG", "SET", "maxmemory", "100mb")
	w[2].Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	found = findings(t, w.addrs(), redlock.Config{AllowEviction: true})
	expect(t, found, "nodes", driver.Warning, w[0].Addr())
	expect(t, found, "probe lock", driver.Warning, w[1].Addr()+": it may have lost its data")
	expect(t, found, "eviction", driver.Broken, w[2].Addr()+": maxmemory-policy allkeys-lru")
	found = findings(t, w.addrs(), redlock.Config{NoQuarantine: true})
	expect(t, found, "quarantine", driver.Warning, "off")
	expect(t, found, "persistence", driver.Warning, "none")

	w[3].Do(t, "ACL", "SETUSER", "default", "-info", "-time")
	w[4].Replicaof(t, "127.0.0.1", "1")
	found = findings(t, w.addrs(), redlock.Config{})
	expect(t, found, "independence", driver.Unknown, w[3].Addr())
	expect(t, found, "clocks", driver.Unknown, w[3].Addr())
	expect(t, found, "probe lock", driver.Broken, "")
	w[3].Do(t, "ACL", "SETUSER", "default", "+info")
	expect(t, findings(t, w.addrs(), redlock.Config{}), "server", driver.Broken, w[4].Addr()+": ")
	for _, r := range w[2:4] {
		r.Kill(t)
	}
	expect(t, findings(t, w.addrs(), redlock.Config{}), "nodes", driver.Broken, "2 of 5")
	w[1].Kill(t)
	w[4].Kill(t)
	if _, err := open(t, w.addrs(), redlock.Config{}).Inspect(t.Context(), time.Second); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("with all nodes down: got %v, want ErrUnavailable", err)
	}
}

// TestInspectSameServer: two addresses of one server are two votes of it.
func TestInspectSameServer(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	again := strings.Replace(w[0].Addr(), "127.0.0.1", "localhost", 1)
	expect(t, findings(t, append(w.addrs()[:2], again), redlock.Config{}), "independence", driver.Broken, "are the same server")
}

// TestGrantIsTheDocumentedRule: what an inspection tells people to grant is what the page says.
func TestGrantIsTheDocumentedRule(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/engines/redlock.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rule, _ := strings.Cut(string(doc), "ACL SETUSER locks on >PASSWORD resetchannels ")
	rule, _, _ = strings.Cut(rule, "\n")
	w := startNodes(t, 3)
	for _, r := range w {
		r.Do(t, "ACL", "SETUSER", "default", "-set")
	}
	if do := findings(t, w.addrs(), redlock.Config{})["probe lock"].Fix; rule == "" || do != "ACL SETUSER name "+rule {
		t.Errorf("do %q, and the page says %q", do, rule)
	}
}

// TestRemovedCommand: without a command that a provider has removed from a majority of the nodes,
// the inspection and the error of an acquire name it, and no fix says to grant a right.
func TestRemovedCommand(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"EVALSHA", "SET", "ZADD", "HSET", "PUBLISH"} {
		var addrs []string
		for range 3 {
			addrs = append(addrs, redistest.StartRedis(t, "--rename-command", command, "").Addr())
		}
		named := 0
		for _, f := range findings(t, addrs, redlock.Config{NoQuarantine: true}) {
			if f.Severity > driver.Good && strings.Contains(f.Observed, command) {
				if named++; !strings.HasPrefix(f.Fix, "ask the provider") {
					t.Errorf("%s: do %q", f.Check, f.Fix)
				}
			}
		}
		if named == 0 {
			t.Errorf("no finding names %s", command)
		}
		_, err := open(t, addrs, redlock.Config{NoQuarantine: true}).Acquire(t.Context(), driver.Request{Name: "n", TTL: long})
		if command == "EVALSHA" || command == "SET" {
			if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), command) {
				t.Errorf("without %s: %v", command, err)
			}
		}
	}
}
