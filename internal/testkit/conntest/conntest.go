// Package conntest tests implementations of redisconn.Conn on real servers.
package conntest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// A Maker creates clients of one kind. They are closed at the end of the test.
type Maker struct {
	Single   func(t testing.TB, addr string) redisconn.Conn
	Cluster  func(t testing.TB, addrs []string) redisconn.Conn
	Sentinel func(t testing.TB, addrs []string, master string) redisconn.Conn
}

// late is far more than anything prompt takes, and less than what ends a call otherwise.
const late = 3 * time.Second

// promptly fails the test unless one of three runs of f is prompt: a slow machine delays
// some, a call that does not heed its context all.
func promptly(t *testing.T, what string, f func()) {
	t.Helper()
	for range 3 {
		start := time.Now()
		f()
		if time.Since(start) < late {
			return
		}
	}
	t.Errorf("%s took longer than %v", what, late)
}

// Run runs all tests.
func Run(t *testing.T, m Maker) {
	server := redistest.StartRedis(t)
	conn := m.Single(t, server.Addr())
	for name, test := range map[string]func(*testing.T, *redistest.Redis, redisconn.Conn){
		"Order":          testOrder,
		"NoScript":       testNoScript,
		"ScriptFlush":    testScriptFlush,
		"Contexts":       testContexts,
		"Frozen":         testFrozen,
		"ServerErrors":   testServerErrors,
		"ScanAndEach":    testScanAndEach,
		"Messages":       testMessages,
		"NothingIsLeft":  testNothingIsLeft,
		"ConcurrentSame": testConcurrent,
	} {
		t.Run(name, func(t *testing.T) { test(t, server, conn) })
	}
	for name, test := range map[string]func(*testing.T, Maker){
		"Restart":      testRestart,
		"Subscription": testSubscribeEnds,
		"LostReply":    testLostReply,
		"SilentDeath":  testSilentDeath,
		"Unreachable":  testUnreachable,
		"Replicas":     testReplicas,
		"Cluster":      testCluster,
		"ClusterMoves": testClusterMoves,
		"Failover":     testFailover,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each has servers of its own
			test(t, m)
		})
	}
}

var (
	echo = redisconn.NewScript(`return ARGV[1]`)
	incr = redisconn.NewScript(`return tostring(redis.call('INCR', KEYS[1]))`)
)

func echoCall(key, text string) redisconn.Call {
	return redisconn.Call{Script: echo, Keys: []string{key}, Args: []string{text}}
}

func incrCall(key string) redisconn.Call {
	return redisconn.Call{Script: incr, Keys: []string{key}}
}

// eval makes one call that must succeed.
func eval(t testing.TB, conn redisconn.Conn, c redisconn.Call) string {
	t.Helper()
	r := conn.Eval(t.Context(), []redisconn.Call{c})[0]
	if r.Err != nil {
		t.Fatalf("Eval: %v", r.Err)
	}
	return r.Text
}

// evalUntil makes one call until it succeeds, as an engine does while servers
// come and go.
func evalUntil(t testing.TB, conn redisconn.Conn, c redisconn.Call) string {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		r := conn.Eval(ctx, []redisconn.Call{c})[0]
		cancel()
		if err = r.Err; err == nil {
			return r.Text
		}
	}
	t.Fatalf("Eval: %v", err)
	return ""
}

func testOrder(t *testing.T, _ *redistest.Redis, conn redisconn.Conn) {
	for _, n := range []int{1, 2, 1000} {
		calls := make([]redisconn.Call, n)
		for i := range calls {
			calls[i] = echoCall(fmt.Sprint("order", i%7), strconv.Itoa(i))
		}
		for i, r := range conn.Eval(t.Context(), calls) {
			if r.Err != nil || r.Text != strconv.Itoa(i) {
				t.Fatalf("reply %d of %d: %q, %v", i, n, r.Text, r.Err)
			}
		}
	}
	if got := conn.Eval(t.Context(), nil); len(got) != 0 {
		t.Errorf("no calls: %v", got)
	}
}

func testNoScript(t *testing.T, server *redistest.Redis, conn redisconn.Conn) {
	known, unknown := redisconn.NewScript(`return 'known' .. ARGV[1]`), redisconn.NewScript(`return 'unknown' .. ARGV[1]`)
	server.Do(t, "SCRIPT", "LOAD", known.Source())
	var calls []redisconn.Call
	for i := range 20 {
		c := redisconn.Call{Script: known, Keys: []string{"k"}, Args: []string{strconv.Itoa(i)}}
		if i%3 == 0 {
			c.Script = unknown
		}
		calls = append(calls, c)
	}
	for i, r := range conn.Eval(t.Context(), calls) {
		want := "known" + strconv.Itoa(i)
		if i%3 == 0 {
			want = "un" + want
		}
		if r.Err != nil || r.Text != want {
			t.Errorf("reply %d: %q, %v; want %q", i, r.Text, r.Err, want)
		}
	}
	server.Do(t, "SCRIPT", "FLUSH")
	if got := eval(t, conn, echoCall("k", "again")); got != "again" {
		t.Errorf("after SCRIPT FLUSH: %q", got)
	}
}

// testScriptFlush proves that a call runs once, whatever happens to its script.
func testScriptFlush(t *testing.T, server *redistest.Redis, conn redisconn.Conn) {
	calls := make([]redisconn.Call, 50)
	for i := range calls {
		calls[i] = incrCall("flushed")
	}
	done := make(chan struct{})
	flushed := make(chan error, 1)
	go func() { // ends when done is closed
		for {
			select {
			case <-done:
				flushed <- nil
				return
			default:
			}
			if _, err := server.TryDo("SCRIPT", "FLUSH"); err != nil {
				flushed <- err
				return
			}
		}
	}()
	const rounds = 40
	ran := 0
	for range rounds {
		for _, r := range conn.Eval(t.Context(), calls) {
			if r.Err == nil {
				ran++
			} else if !strings.HasPrefix(r.Err.Error(), "NOSCRIPT") {
				t.Fatal(r.Err)
			}
		}
	}
	close(done)
	if err := <-flushed; err != nil {
		t.Fatal(err)
	}
	if got := server.Do(t, "GET", "flushed"); got != strconv.Itoa(ran) {
		t.Errorf("%s runs for %d calls that succeeded", got, ran)
	}
	if ran != rounds*len(calls) {
		t.Errorf("%d of %d calls succeeded", ran, rounds*len(calls))
	}
}

func testServerErrors(t *testing.T, server *redistest.Redis, conn redisconn.Conn) {
	raise := redisconn.NewScript(`return redis.error_reply('OOM command not allowed')`)
	r := conn.Eval(t.Context(), []redisconn.Call{{Script: raise, Keys: []string{"k"}}})[0]
	if e, ok := errors.AsType[redisconn.ServerError](r.Err); !ok || !strings.HasPrefix(e.Text, "OOM") {
		t.Errorf("an error of a script is %v", r.Err)
	}
	server.Do(t, "ACL", "SETUSER", "default", "-evalsha", "-eval", "-subscribe")
	defer server.Do(t, "ACL", "SETUSER", "default", "+@all")
	for _, n := range []int{1, 3} {
		for _, r := range conn.Eval(t.Context(), make3(n)) {
			if e, ok := errors.AsType[redisconn.ServerError](r.Err); !ok || !strings.HasPrefix(e.Text, "NOPERM") || !strings.Contains(e.Text, "evalsha") {
				t.Errorf("without the right to EVALSHA: %v", r.Err)
			}
		}
	}
	err := conn.Subscribe(t.Context(), "c", func() { t.Error("subscribed") }, func(string) {})
	if e, ok := errors.AsType[redisconn.ServerError](err); !ok || !strings.HasPrefix(e.Text, "NOPERM") {
		t.Errorf("Subscribe without the right: %v", err)
	}
}

func make3(n int) (calls []redisconn.Call) {
	for range n {
		calls = append(calls, echoCall("k", "v"))
	}
	return calls
}

func testScanAndEach(t *testing.T, server *redistest.Redis, conn redisconn.Conn) {
	server.Do(t, "FLUSHALL")
	server.Do(t, "EVAL", `for i = 1, 2500 do redis.call('SET', 'scan:' .. i, 'v', 'PX', 600000) end`, "0")
	server.Do(t, "SET", "other", "v", "PX", "600000")
	seen := scan(t, conn, "scan:*")
	if len(seen) != 2500 || seen["other"] {
		t.Errorf("Scan saw %d keys", len(seen))
	}
	stop := errors.New("enough")
	if err := conn.Scan(t.Context(), 0, "scan:*", func([]string) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Scan stopped with %v", err)
	}
	answers, err := conn.Each(t.Context(), "CONFIG", "GET", "appendonly")
	if err != nil || len(answers) != 1 || answers[0].Err != nil || answers[0].Text != "appendonly\nno" {
		t.Errorf("CONFIG GET: %+v, %v", answers, err)
	}
	answers, err = conn.Each(t.Context(), "NONSENSE")
	if err != nil || len(answers) != 1 {
		t.Fatalf("nonsense: %+v, %v", answers, err)
	}
	if _, ok := errors.AsType[redisconn.ServerError](answers[0].Err); !ok {
		t.Errorf("nonsense: %v", answers[0].Err)
	}
}

func scan(t *testing.T, conn redisconn.Conn, match string) map[string]bool {
	t.Helper()
	seen := map[string]bool{}
	err := conn.Scan(t.Context(), 0, match, func(keys []string) error {
		for _, k := range keys {
			seen[k] = true
		}
		return nil
	})
	if err != nil {
		t.Fatalf("Scan: %v", err)
	}
	return seen
}
