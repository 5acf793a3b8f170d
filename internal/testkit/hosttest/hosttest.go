// Package hosttest provides what test servers need of the machine: directories, ports, and a wall
// clock that can be set.
package hosttest

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Dir creates a directory that is removed at the end of the test.
func Dir(t TB, pattern string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", pattern)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// reserved keeps the ports of this process from being given out again, by any process.
var reserved struct {
	sync.Mutex
	listeners []net.Listener // guarded by the mutex; open for as long as the process runs
}

// FreePort returns a free port. It is below the range for outgoing connections, so that a stopped
// server gets its port again, and a client that connects meanwhile is not connected to itself. A
// listener on another address of the machine reserves it for this process.
func FreePort(t TB) int {
	t.Helper()
	for range 1000 {
		port := 10000 + rand.IntN(22000)
		claim, err := net.Listen("tcp", net.JoinHostPort("127.0.0.2", strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		l, busy := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		switch {
		case busy == nil:
			_ = l.Close()
			if err == nil { // some systems have one loopback address only
				reserved.Lock()
				reserved.listeners = append(reserved.listeners, claim)
				reserved.Unlock()
			}
			return port
		case err == nil:
			_ = claim.Close()
		}
	}
	t.Fatal("no free port on 127.0.0.1 between 10000 and 32000")
	return 0
}

// Orphan helps to test that servers end with their test. It runs the test again in another process,
// where start starts the servers and returns where they are. It then kills that process and returns
// the result of start.
func Orphan(t TB, start func() string) string {
	t.Helper()
	const env = "FENCELOCK_TEST_ORPHAN"
	if os.Getenv(env) != "" {
		fmt.Println(env, start())
		select {} // until it is killed
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), env+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	for lines := bufio.NewScanner(out); said == "" && lines.Scan(); {
		_, said, _ = strings.Cut(lines.Text(), env+" ")
	}
	_, _ = cmd.Process.Kill(), cmd.Wait()
	if said == "" {
		t.Fatal("the servers did not start")
	}
	return said
}
