package redislock_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/redislock"
)

// commands counts what the server has run since the statistics were reset: calls
// of clients, and all commands, those of scripts included.
func (s scene) commands() (calls, all int) {
	s.Helper()
	for line := range strings.Lines(s.server.Do(s, "INFO", "everything")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		_, n, _ := strings.Cut(value, "calls=")
		n, _, _ = strings.Cut(n, ",")
		switch name {
		case "total_commands_processed":
			all, _ = strconv.Atoi(value)
		case "cmdstat_evalsha", "cmdstat_eval", "cmdstat_ping":
			count, _ := strconv.Atoi(n)
			calls += count
		}
	}
	return calls, all
}

// crowd makes so many engines with so many waiters each for one name.
func (s scene) crowd(engines, each int, ttl time.Duration) (ws []*call) {
	s.Helper()
	req := request("n")
	req.TTL = ttl
	for range engines {
		e := s.engine(nil)
		s.ask(e, try(req)) // opens its subscription
		s.ready(e)
		for range each {
			ws = append(ws, s.ask(e, req))
		}
	}
	s.until("all stand in the queue", func() bool { return s.queued("n") == engines*each })
	return ws
}

// TestQuietCrowd: while nothing happens a waiting process sends one command a second,
// however many waiters it has for a name, and however many names.
func TestQuietCrowd(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.hold(s.engine(nil), request("n"))
	s.crowd(5, 200, long)
	e, others := s.engine(nil), s.engine(nil)
	for i := range 80 { // in one process
		name := fmt.Sprint("name", i)
		s.hold(others, request(name))
		s.queue(e, request(name))
	}
	s.server.Do(t, "CONFIG", "RESETSTAT")
	begun := time.Now()
	time.Sleep(6 * time.Second)
	calls, all := s.commands()
	took := time.Since(begun)
	const index = 2 * 6 // writes of the index of names
	if most := 6*int(took/(900*time.Millisecond)+2) + index; calls > most {
		t.Errorf("%d calls in %v of 6 processes with 1,080 waiters for 81 names, want at most %d", calls, took, most)
	}
	t.Logf("6 processes with 1,080 waiters for 81 names: %d calls, %d commands in %v", calls, all, took)
}

// TestHandOverCostIsConstant: the commands that a hand-over costs the server do not
// depend on how many wait.
func TestHandOverCostIsConstant(t *testing.T) {
	t.Parallel()
	cost := map[int]int{}
	for _, waiters := range []int{10, 1000} {
		s := newScene(t)
		h := s.hold(s.engine(nil), request("n"))
		ws := s.crowd(5, waiters/5, time.Minute)
		calls, all := math.MaxInt, math.MaxInt // of the cheapest: slow ones make others look
		for range 9 {
			s.server.Do(t, "CONFIG", "RESETSTAT")
			h.free()
			h = s.winner(ws)
			c, a := s.commands()
			calls, all = min(calls, c), min(all, a)
		}
		if cost[waiters] = all; calls > 2 {
			t.Errorf("%d waiters: %d calls for a hand-over", waiters, calls)
		}
		t.Logf("%d waiters: %d calls and %d commands a hand-over", waiters, calls, all)
	}
	if cost[1000] > cost[10]+5 {
		t.Errorf("a hand-over costs %d commands with 10 waiters, and %d with 1,000", cost[10], cost[1000])
	}
}

// winner waits for the one of the calls that holds the lock, and takes it out.
func (s scene) winner(ws []*call) (h hold) {
	s.Helper()
	s.until("one gets in", func() bool {
		for i, w := range ws {
			if w != nil && w.answered() {
				h, ws[i] = w.granted(), nil
				return true
			}
		}
		return false
	})
	return h
}

// worker takes turns until stop.
func (s scene) worker(e *redislock.Engine, me int, turns chan<- int, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		g, err := e.Acquire(s.Context(), request("n"))
		if err != nil {
			return
		}
		select {
		case turns <- me:
		case <-stop:
		}
		h := hold{s, e, request("n"), g}
		_ = h.release()
	}
}
