package redistest_test

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

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

// TestRedisDiesWithItsTest: also if it is frozen.
func TestRedisDiesWithItsTest(t *testing.T) {
	t.Parallel()
	addr, dir, _ := strings.Cut(hosttest.Orphan(t, func() string {
		r := redistest.StartRedis(t)
		r.Freeze(t)
		return r.Addr() + " " + r.Dir()
	}), " ")
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
