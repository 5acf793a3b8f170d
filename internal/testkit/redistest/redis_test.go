package redistest_test

import (
	"bufio"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

func TestRedisAnswersAndForgets(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t)
	if got := r.Do(t, "PING"); got != "PONG" {
		t.Errorf("PING: %q", got)
	}
	r.Do(t, "SET", "a", "1")
	if got := r.Do(t, "MGET", "a", "none", "a"); got != "1\n\n1" {
		t.Errorf("MGET: %q", got)
	}
	if _, err := r.TryDo("LPUSH", "a", "1"); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		t.Errorf("LPUSH: %v", err)
	}
	if got := r.Do(t, "DBSIZE"); got != "1" {
		t.Errorf("DBSIZE: %q", got)
	}
	pid, port := r.PID(), r.Port()
	r.Restart(t)
	if r.PID() == pid || r.Port() != port {
		t.Errorf("after the restart: pid %d was %d, port %d was %d", r.PID(), pid, r.Port(), port)
	}
	if got := r.Do(t, "DBSIZE"); got != "0" {
		t.Errorf("after the restart: %s keys", got)
	}
}

func TestRedisKeepsWithAppendOnly(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	r.Do(t, "SET", "a", "1")
	r.Kill(t)
	if _, err := r.TryDo("PING"); err == nil || r.PID() != 0 {
		t.Errorf("a killed server answers: %v, pid %d", err, r.PID())
	}
	r.Restart(t)
	if got := r.Do(t, "GET", "a"); got != "1" {
		t.Errorf("after kill and restart: %q", got)
	}
}

func TestRedisWithPassword(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t, "--requirepass", "secret")
	if got := r.Do(t, "ACL", "WHOAMI"); got != "default" {
		t.Errorf("WHOAMI: %q", got)
	}
	r.Do(t, "ACL", "SETUSER", "bob", "on", ">b", "~*", "+get")
}

func TestRedisRemovesItsDirectory(t *testing.T) {
	t.Parallel()
	var dir string
	t.Run("inner", func(t *testing.T) { dir = redistest.StartRedis(t).Dir() })
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
}

func TestRedisFrozenIsSilentUntilThawed(t *testing.T) {
	t.Parallel()
	r := redistest.StartRedis(t)
	r.Freeze(t)
	done := make(chan error, 1)
	go func() {
		_, err := r.TryDo("PING")
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("a frozen server answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	r.Thaw(t)
	if err := <-done; err != nil {
		t.Errorf("after the thaw: %v", err)
	}
	r.Freeze(t)
	r.Restart(t)
	r.Do(t, "PING")
	r.Freeze(t) // and so the end of the test finds it
}

func TestRedisReplicaFollows(t *testing.T) {
	t.Parallel()
	m := redistest.StartRedis(t)
	m.Do(t, "SET", "a", "1")
	r := redistest.StartRedisReplica(t, m)
	if got := r.Do(t, "GET", "a"); got != "1" {
		t.Errorf("on the replica: %q", got)
	}
	if _, err := r.TryDo("SET", "a", "2"); err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
		t.Errorf("a write on the replica: %v", err)
	}
	r.Replicaof(t, "127.0.0.1", "1")
	m.Do(t, "SET", "b", "1")
	if got := m.Do(t, "WAIT", "1", "50"); got != "0" {
		t.Errorf("replicas after the cut: %s", got)
	}
	r.Replicaof(t, "no", "one")
	if got := r.Do(t, "MGET", "a", "b"); got != "1\n" {
		t.Errorf("promoted: %q", got)
	}
}

func TestRedisTLS(t *testing.T) {
	t.Parallel()
	r, ca := redistest.StartRedisTLS(t)
	if got := r.Do(t, "PING"); got != "PONG" {
		t.Errorf("PING: %q", got)
	}
	pem, err := os.ReadFile(ca)
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(pem) {
		t.Errorf("the authority's file: %v", err)
	}
	r.Restart(t)
}

const envTied = "FENCELOCK_TEST_TIED"

// TestRedisDiesWithItsTest kills a test binary that has a server, and looks for
// the server.
func TestRedisDiesWithItsTest(t *testing.T) {
	t.Parallel()
	if os.Getenv(envTied) != "" {
		r := redistest.StartRedis(t)
		r.Freeze(t)
		fmt.Println("server", r.Addr(), r.Dir())
		select {}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run", "^TestRedisDiesWithItsTest$")
	cmd.Env = append(os.Environ(), envTied+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var addr, dir string
	for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
		fmt.Sscanf(lines.Text(), "server %s %s", &addr, &dir)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if dir == "" {
		t.Fatal("the child started no server")
	}
	defer os.RemoveAll(dir)
	for range 1000 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		c.Close()
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("the server on %s outlived its test", addr)
}
