package redislock_test

import (
	"strings"
	"sync/atomic"
	"testing"
)

// TestFrozenEnginesBesideHotContenders: a process with two engines, and several waiters
// in each, is frozen while others take turns all the time. It costs them one grant for
// each engine, and its waiters get their turns when it goes on.
func TestFrozenEnginesBesideHotContenders(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.brisk = true
	h := s.hold(s.engine(nil), request("n"))
	var grants [2]atomic.Int32
	var taps []*tap
	var frozen []*call
	for range grants {
		e, tap := s.tapped(nil)
		taps = append(taps, tap)
		for range 3 {
			frozen = append(frozen, s.queue(e, request("n")))
		}
	}
	for i, tap := range taps {
		tap.freeze(t)
		tap.texts(func(text string, _ func(string)) {
			if strings.HasPrefix(text, "grant ") {
				grants[i].Add(1)
			}
		})
	}
	turns, stop := make(chan int), make(chan struct{})
	defer close(stop)
	for i := range 4 {
		e := s.engine(nil)
		s.ask(e, request("warm"))
		s.ready(e)
		go s.worker(e, i, turns, stop) // ends with stop
	}
	h.free()
	for range 300 {
		<-turns
	}
	for i := range grants {
		if n := grants[i].Load(); n > 1 {
			t.Errorf("the frozen engine %d was handed the lock %d times, want once at most", i, n)
		}
	}
	go func() { // ends with stop: nobody stands still for the count
		for {
			select {
			case <-turns:
			case <-stop:
				return
			}
		}
	}()
	for _, tap := range taps {
		tap.calls(nil)
		tap.texts(nil)
	}
	for _, c := range frozen {
		got, err := c.ended()
		if err != nil {
			t.Errorf("after the freeze: %v", err)
			continue
		}
		_ = got.release() // its lease may be over by now
	}
}
