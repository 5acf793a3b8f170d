//go:build unix

package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest"
	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

func TestCounterUnderFaults(t *testing.T) {
	service := filepath.Join(t.TempDir(), "service")
	if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", service, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	redis := redistest.StartRedis(t).Addr() // the address of a server of your own is fine
	run := chaostest.New(t)
	start := func(worker string) *chaostest.Process {
		cmd := exec.Command(service)
		cmd.Env = append(os.Environ(), "REDIS_ADDR="+run.Proxy(redis).Addr())
		return run.Start(worker, cmd)
	}
	first, second := start("first"), start("second")

	// A frozen holder loses its lock. It writes when it goes on, and the write is refused.
	for refused := 0; refused == 0; { // it may be frozen after its write
		h := run.Await("holder to freeze", func(h *history.History) bool { return holds(h, "first") })
		first.Freeze()
		run.Await("write of its successor", func(now *history.History) bool { return writes(now, "second") > writes(h, "second") })
		first.Thaw()
		h = run.Await("end of its work", func(h *history.History) bool {
			return !holds(h, "first") && h.Length > h.Faults[len(h.Faults)-1].To+time.Second
		})
		refused = h.Stats().Refused
	}
	// The lock of a killed holder is free after its TTL.
	h := run.Await("holder to kill", func(h *history.History) bool { return holds(h, "second") })
	second.Kill()
	run.Await("successor", func(now *history.History) bool { return writes(now, "first") > writes(h, "first") })

	run.Check(history.Rules{Death: 10 * time.Second, Closed: 10 * time.Second, Search: time.Minute})
}

// holds reports whether a worker holds the lock.
func holds(h *history.History, worker string) bool {
	for _, a := range h.Acquisitions {
		if a.Worker == worker && a.Ended == 0 && a.Died == 0 {
			return true
		}
	}
	return false
}

// writes returns how many writes of a worker the counter accepted.
func writes(h *history.History, worker string) (n int) {
	for _, w := range h.Writes {
		if w.Worker == worker && !w.Refused {
			n++
		}
	}
	return n
}
