package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
)

// listed returns the names that e lists.
func (s scene) listed(e driver.Lister, q driver.Query) (names []string) {
	s.Helper()
	list, err := e.List(context.Background(), q)
	if err != nil {
		s.Fatal(err)
	}
	for _, st := range list {
		names = append(names, st.Name)
	}
	return names
}

// lists waits until e lists just these names.
func (s scene) lists(e driver.Lister, q driver.Query, want ...string) {
	s.Helper()
	s.until(fmt.Sprintf("listed %.100q", want), func() bool { return slices.Equal(s.listed(e, q), want) })
}

// fill puts keys of other programs and of idle locks beside those of a test.
func (s scene) fill(foreign, idle int) {
	s.Helper()
	for _, c := range []struct {
		key, value string
		n          int
	}{{"foreign:%d", "v", foreign}, {"fencelock:2:fence:{lock:idle-%d}", "1700000000000001", idle}} {
		for from := 0; from < c.n; from += 100_000 {
			s.server.Do(s, "EVAL", `for i = ARGV[1], ARGV[2] do redis.call('SET', string.format(ARGV[3], i), ARGV[4], 'PX', 86400000) end`, "0",
				strconv.Itoa(from), strconv.Itoa(min(from+100_000, c.n)-1), c.key, c.value)
		}
	}
}

// cpu is what the server has used of the processor.
func (s scene) cpu() (used time.Duration) {
	s.Helper()
	for _, m := range regexp.MustCompile(`used_cpu_(?:sys|user):([\d.]+)`).FindAllStringSubmatch(s.server.Do(s, "INFO", "cpu"), -1) {
		seconds, _ := strconv.ParseFloat(m[1], 64)
		used += time.Duration(seconds * float64(time.Second))
	}
	return used
}

// TestListLooksAtTheIndex: a listing does not look through the server's keys. Slow, it
// shows what a listing of 100 names costs beside 2,000,000 keys of other programs and
// 100,000 of locks that nobody holds.
func TestListLooksAtTheIndex(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	foreign, idle := 2000, 1000
	if os.Getenv("FENCELOCK_SLOW") != "" {
		foreign, idle = 2_000_000, 100_000
	}
	s.fill(foreign, idle)
	e := s.engine(nil)
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("held-%03d", i))
		s.hold(e, request(names[i]))
	}
	s.lists(s.observer(), driver.Query{}, names...)
	s.lists(s.observer(), driver.Query{Prefix: "held-00"}, names[:10]...)
	if stats := s.server.Do(t, "INFO", "commandstats"); strings.Contains(stats, "cmdstat_scan:") {
		t.Error("a listing has looked through all keys")
	}
	const rounds = 20
	before := s.cpu()
	for range rounds {
		s.listed(s.observer(), driver.Query{})
	}
	each := (s.cpu() - before) / rounds
	t.Logf("a listing of 100 names beside %d keys takes %v of the server", foreign+idle, each)
	if each > 20*time.Millisecond {
		t.Error("that is too much")
	}
	before = s.cpu()
	s.lists(s.observer(), driver.Query{Scan: true}, names...)
	t.Logf("with Scan %v", s.cpu()-before)
}

// TestWhatTheIndexTells: names that are held by other programs while somebody waits, and
// such as are closed by a minimum hold, whose client has ended.
func TestWhatTheIndexTells(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	s.server.Do(t, "SET", "lock:foreign", "somebody", "PX", "60000")
	s.queue(e, request("foreign"))
	s.lists(s.observer(), driver.Query{}, "foreign")
	if st := s.status("foreign"); len(st.Holders) != 1 || !st.Holders[0].Foreign || len(st.Waiters) != 1 {
		t.Errorf("listed as %+v", st)
	}
	ended := s.engine(nil)
	closing := brief("closed")
	closing.MinHold = time.Hour
	s.hold(ended, closing).free()
	if err := ended.Close(); err != nil {
		t.Fatal(err)
	}
	s.lists(s.observer(), driver.Query{}, "closed", "foreign")
	for _, key := range s.keys() {
		if s.server.Do(t, "PTTL", key) == "-1" {
			t.Errorf("%s has no end", key)
		}
	}
}

// TestNamesLeaveTheIndex: who lists a name that is free takes it out, however long its
// lease would have lasted, and what is held again is there again.
func TestNamesLeaveTheIndex(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	req := request("n")
	req.TTL = 24 * time.Hour
	h := s.hold(e, req)
	s.lists(s.observer(), driver.Query{}, "n")
	h.free()
	s.until("out of the index", func() bool {
		s.lists(s.observer(), driver.Query{})
		return s.server.Do(t, "ZCARD", "fencelock:names") == "0"
	})
	h = s.hold(e, req)
	s.lists(s.observer(), driver.Query{}, "n")
	s.server.Do(t, "DEL", "fencelock:names")
	if err := h.renew(); err != nil {
		t.Fatal(err)
	}
	s.lists(s.observer(), driver.Query{}, "n")
}

// TestNamesAreDroppedInTime: a word that a name was free, which arrives late, does not
// take it out: somebody may hold it by then.
func TestNamesAreDroppedInTime(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	s.server.Do(t, "ZADD", "fencelock:names", "99999999999999", "n")
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		if c.Script == redislock.IndexDropScript {
			time.Sleep(250 * time.Millisecond)
		}
		return do()
	})
	s.listed(e, driver.Query{})
	if got := s.server.Do(t, "ZCARD", "fencelock:names"); got != "1" {
		t.Errorf("%s names are left", got)
	}
}

// TestShortLocksAreNotNoted: they cost no command.
func TestShortLocksAreNotNoted(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	var mu sync.Mutex // guards noted
	noted := map[string]bool{}
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		if c.Script == redislock.IndexScript { // a life and a name each
			mu.Lock()
			defer mu.Unlock()
			for i := 1; i < len(c.Args); i += 2 {
				noted[c.Args[i]] = true
			}
		}
		return do()
	})
	isNoted := func(name string) bool {
		mu.Lock()
		defer mu.Unlock()
		return noted[name]
	}
	var short []string
	tries := 0
	s.until("short locks", func() bool {
		tries++
		name, begun := strconv.Itoa(tries), time.Now()
		if s.hold(e, request(name)).free(); time.Since(begun) < 200*time.Millisecond {
			short = append(short, name)
		}
		return len(short) == 20
	})
	begun := time.Now()
	s.hold(e, request("long"))
	s.until("noted", func() bool { return isNoted("long") })
	if took := time.Since(begun); took < 200*time.Millisecond {
		t.Errorf("a name was noted after %v", took)
	}
	for _, name := range short {
		if isNoted(name) {
			t.Errorf("%q was noted, and was held for a moment", name)
		}
	}
}

// TestIndexRefused: where the user has not the right to the index, names are found as
// ever, and the server is not asked again and again.
func TestIndexRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.server.Do(t, "ACL", "SETUSER", "default", "resetkeys", "~lock:*", "~fencelock:2:*")
	e, tap := s.tapped(nil)
	var notes atomic.Int32
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		r := do()
		if _, refused := errors.AsType[redisconn.ServerError](r.Err); refused && c.Script == redislock.IndexScript {
			notes.Add(1)
		}
		return r
	})
	h := s.hold(e, request("n"))
	s.lists(s.observer(), driver.Query{}, "n")
	s.until("refused", func() bool { return notes.Load() > 0 })
	for range 3 {
		if err := h.renew(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
	}
	if n := notes.Load(); n > 1 {
		t.Errorf("%d notes were tried", n)
	}
}

// TestClusterIndex: on a Cluster the index lies on all masters.
func TestClusterIndex(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	s := scene{TB: t, server: c.Nodes()[0]}
	e, observer := clusterEngine(t, c), clusterEngine(t, c)
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("n-%02d", i))
		s.hold(e, request(names[i]))
	}
	s.lists(observer, driver.Query{}, names...)
	for _, node := range c.Nodes() {
		if stats := node.Do(t, "INFO", "commandstats"); strings.Contains(stats, "cmdstat_scan:") || !strings.Contains(stats, "cmdstat_zscan:") {
			t.Errorf("%s: %s", node.Addr(), stats)
		}
	}
}
