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

// TestRemovedCommand: a provider has removed a command that the scripts or the clients need. The
// inspection names it and what fails without it. What fails then is a matter of the configuration,
// which no retry mends: it fails at once, and names the command too.
func TestRemovedCommand(t *testing.T) {
	t.Parallel()
	for _, command := range append(scriptCommands(t), "EVAL", "EVALSHA", "SUBSCRIBE", "SCAN", "WAIT", "ZSCAN") {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, "--rename-command", command, "")
			named := ""
			for _, f := range findings(t, s.server, nil) {
				if f.Severity > driver.Good && strings.Contains(f.Observed, command) {
					if named = f.Fix; !strings.HasPrefix(f.Fix, "ask the provider") && f.Check != "server" {
						t.Errorf("%s: do %q", f.Check, f.Fix)
					}
				}
			}
			if named == "" {
				t.Error("no finding names it")
			}
			s.failsAtOnce(command, request("n"), shared(request("s"), 2), minHold(request("m"), time.Second))
		})
	}
}

// failsAtOnce holds and frees names, with a waiter behind each of them, without a command.
func (s scene) failsAtOnce(command string, reqs ...driver.Request) {
	s.Helper()
	e := s.engine(nil)
	check := func(what string, begun time.Time, err error) {
		s.Helper()
		if took := time.Since(begun); took > patience/4 {
			s.Errorf("%s ended after %v: %v", what, took, err)
		}
		if err == nil || errors.Is(err, driver.ErrHeld) {
			return
		}
		if words := strings.ToLower(err.Error()); !errors.Is(err, driver.ErrConfig) ||
			!strings.Contains(words, "unknown") || !strings.Contains(words, strings.ToLower(command)) {
			s.Errorf("%s: %v, want an error of the configuration that names the command", what, err)
		}
	}
	for _, req := range reqs {
		begun := time.Now()
		h, err := s.ask(e, req).ended()
		check("acquiring "+req.Name, begun, err)
		if err != nil {
			continue
		}
		begun = time.Now()
		_, err = s.ask(e, try(request(req.Name))).ended()
		check("asking for "+req.Name, begun, err)
		begun = time.Now()
		check("renewing "+req.Name, begun, h.renew())
		begun = time.Now()
		check("releasing "+req.Name, begun, h.release())
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
