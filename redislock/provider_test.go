package redislock_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// TestRemovedCommand: a provider has removed a command that the scripts need. That is a matter of
// the configuration, which no retry mends.
func TestRemovedCommand(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"TIME", "EVALSHA", "EXISTS"} {
		s := newScene(t, "--rename-command", command, "")
		req := request("n")
		req.MinHold = time.Minute
		begun := time.Now()
		_, err := s.engine(nil).Acquire(t.Context(), req)
		if !errors.Is(err, driver.ErrConfig) || !strings.Contains(strings.ToLower(err.Error()), "unknown") {
			t.Errorf("without %s: %v", command, err)
		}
		if time.Since(begun) > patience/4 {
			t.Errorf("without %s the error came after %v", command, time.Since(begun))
		}
	}
}

// TestFailedSave: after a save that failed the server refuses writes until one succeeds. Requests
// get in then.
func TestFailedSave(t *testing.T) {
	t.Parallel()
	s := newScene(t, "--save", "3600 1", "--dbfilename", "dump")
	inTheWay := filepath.Join(s.server.Dir(), "dump")
	if err := os.Mkdir(inTheWay, 0o777); err != nil {
		t.Fatal(err)
	}
	e := s.engine(nil)
	s.hold(e, request("before")).free()
	s.server.Do(t, "BGSAVE")
	s.until("the save has failed", func() bool {
		_, err := s.server.TryDo("SET", "k", "v")
		return err != nil && strings.HasPrefix(err.Error(), "MISCONF")
	})
	c := s.ask(e, request("n"))
	time.Sleep(300 * time.Millisecond)
	if c.answered() {
		_, err := c.ended()
		t.Fatalf("ended: %v", err)
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	s.server.Do(t, "BGSAVE")
	c.granted().free()
}
