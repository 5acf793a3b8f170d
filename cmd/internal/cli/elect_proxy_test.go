//go:build unix

package cli

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// answerToken is a program for tests, "answertoken ADDRESS". It answers HTTP requests with its
// fencing token.
func answerToken() {
	listener, err := net.Listen("tcp", os.Args[1])
	check(err)
	check(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, os.Getenv(tokenVariable))
	})))
}

// TestLeaderBehindHAProxy: HAProxy checks /leader of three processes. Over hand-overs of all kinds
// a request is answered by the leader or with 503. A former leader, whose token is smaller than one
// that was seen before, answers none.
func TestLeaderBehindHAProxy(t *testing.T) {
	t.Parallel()
	handOvers := 3 // one of each kind
	if os.Getenv("FENCELOCK_SLOW") != "" {
		handOvers = 20
	}
	url := "redis://" + redistest.StartRedis(t).Addr()
	candidates := []*candidate{{rank: 0}, {rank: 1}, {rank: 2}}
	for _, c := range candidates {
		c.url, c.app, c.probe = url, freeAddress(t), freeAddress(t)
		c.begin(t)
		defer c.end()
	}
	v := &visitor{t: t, at: startHAProxy(t, candidates)}
	done := make(chan struct{})
	go v.visit(done) // ends when done is closed
	defer close(done)
	v.await(0)
	for handOver := range handOvers {
		time.Sleep(time.Second) // the leader serves for a while; a better one may take over
		last := v.token.Load()
		leader := leaderOf(t, candidates)
		switch handOver % 3 {
		case 0:
			must(t, leader.cmd.Process.Signal(unix.SIGTERM))
		case 1:
			must(t, leader.cmd.Process.Kill())
		case 2:
			must(t, leader.cmd.Process.Signal(unix.SIGSTOP))
		}
		v.await(last)
		if handOver%3 == 2 {
			must(t, leader.cmd.Process.Signal(unix.SIGCONT))
			continue
		}
		_ = leader.cmd.Wait() // its exit code does not matter
		leader.begin(t)
	}
	// A command that is killed while it answers makes the proxy answer 502.
	t.Logf("the leader answered %d requests in %d terms; %d requests got 503, %d got 502", v.good.Load(), v.terms.Load(), v.none.Load(), v.odd.Load())
	if v.none.Load() == 0 || v.terms.Load() <= int64(handOvers) || v.odd.Load() > 2*int64(handOvers) {
		t.Error("too few or too many")
	}
}

// candidate is a process of fencelock elect whose command answers HTTP requests.
type candidate struct {
	rank            int
	url, app, probe string
	cmd             *exec.Cmd
}

func (c *candidate) begin(t *testing.T) {
	t.Helper()
	c.cmd = exec.Command("fencelock", "elect", "--ttl", "2s", "--rank", strconv.Itoa(c.rank), "--settle", "1s", "--health", c.probe, "x", "--", "answertoken", c.app)
	c.cmd.Env = append(os.Environ(), urlVariable+"="+c.url)
	must(t, c.cmd.Start())
}

func (c *candidate) end() {
	_ = c.cmd.Process.Signal(unix.SIGCONT)
	_ = c.cmd.Process.Signal(unix.SIGTERM)
	_ = c.cmd.Wait()
}

// leaderOf returns the candidate that leads.
func leaderOf(t *testing.T, candidates []*candidate) *candidate {
	t.Helper()
	for end := time.Now().Add(scriptPatience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, c := range candidates {
			if code, _ := get("http://" + c.probe + "/leader"); code == http.StatusOK {
				return c
			}
		}
	}
	t.Fatal("nobody leads")
	return nil
}

// visitor sends requests through the proxy.
type visitor struct {
	t  *testing.T
	at string

	token, terms, good, none, odd atomic.Int64
}

// visit sends one request after the other until done is closed.
func (v *visitor) visit(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(5 * time.Millisecond):
		}
		code, body := get("http://" + v.at)
		token, _ := strconv.ParseInt(body, 10, 64)
		switch last := v.token.Load(); {
		case code == http.StatusServiceUnavailable:
			v.none.Add(1)
		case code == http.StatusBadGateway:
			v.odd.Add(1)
		case code != http.StatusOK || token == 0:
			v.t.Errorf("an answer with the code %d: %q", code, body)
		case token < last:
			v.t.Errorf("the leader of term %d answers after that of term %d", token, last)
		default:
			v.good.Add(1)
			if token > last {
				v.token.Store(token)
				v.terms.Add(1)
			}
		}
	}
}

// await waits until a later leader than that of the term last has answered.
func (v *visitor) await(last int64) {
	v.t.Helper()
	for end := time.Now().Add(scriptPatience); v.token.Load() <= last; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			v.t.Fatalf("no leader answers after that of term %d", last)
		}
	}
}

// get returns the status code and the body of an answer, or 0.
func get(url string) (code int, body string) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

// startHAProxy starts a proxy that asks each candidate whether it leads, and returns its address.
func startHAProxy(t *testing.T, candidates []*candidate) string {
	t.Helper()
	at := freeAddress(t)
	lines := []string{"defaults", "mode http", "timeout connect 1s", "timeout client 5s", "timeout server 5s",
		"listen leader", "bind " + at, "option httpchk GET /leader", "default-server inter 100ms fall 1 rise 1"}
	for _, c := range candidates {
		_, port, err := net.SplitHostPort(c.probe)
		must(t, err)
		lines = append(lines, fmt.Sprintf("server s%d %s check port %s", c.rank, c.app, port))
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	must(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	proxy := exec.Command(programAt("haproxy", "/usr/sbin/haproxy"), "-db", "-q", "-f", file)
	proxy.Stderr = os.Stderr
	must(t, proxy.Start())
	for code := 0; code == 0; code, _ = get("http://" + at) {
		time.Sleep(10 * time.Millisecond) // until it listens
	}
	t.Cleanup(func() {
		_ = proxy.Process.Kill()
		_ = proxy.Wait()
	})
	return at
}

// programAt returns the path of a program that may not be in PATH.
func programAt(name, path string) string {
	if _, err := exec.LookPath(name); err == nil {
		return name
	}
	return path
}

// freeAddress returns an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}
