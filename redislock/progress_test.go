package redislock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// TestWaitingTellsPlaces: every request is told its place when it joins, also behind
// others of its process, and then no more.
func TestWaitingTellsPlaces(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	h := s.hold(a, request("n"))
	var ws []*call
	places := make([][]int, 3)
	told := make(chan struct{}, 100)
	for i := range places {
		req := brief("n")
		req.OnWait = func(info driver.WaitInfo) {
			places[i] = append(places[i], info.Position)
			if info.Held == nil || info.Held.Owner == "" {
				t.Errorf("told of no holder: %+v", info)
			}
			told <- struct{}{}
		}
		ws = append(ws, s.queue(b, req))
		<-told
	}
	ws[0].cancel()
	_, _ = ws[0].ended()
	h.free()
	for _, w := range ws[1:] {
		w.granted().free()
	}
	for i, got := range places {
		if !slices.Equal(got, []int{i + 1}) {
			t.Errorf("request %d was told the places %v, want %d", i, got, i+1)
		}
	}
}

// TestClose ends waits with ErrUnavailable, takes them out of the queue, and leaves
// nothing behind in the process. A closed engine refuses.
func TestClose(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	h := s.hold(a, request("n"))
	ws := s.lineUp(3, request("n"), b)
	begun := time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if n := s.queued("n"); n != 0 && time.Since(begun) < 400*time.Millisecond { // it does not wait for a slow server
		t.Errorf("%d requests of a closed engine stand in the queue", n)
	}
	for _, w := range ws {
		if _, err := w.ended(); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("a wait: %v", err)
		}
	}
	if requests, _, holds := b.Traces(); requests+holds != 0 {
		t.Errorf("%d requests and %d holds are left", requests, holds)
	}
	if _, err := b.Acquire(context.Background(), request("n")); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a closed engine: %v", err)
	}
	if err := b.Renew(t.Context(), []driver.Lease{h.lease()})[0]; !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a renewal by a closed engine: %v", err)
	}
	h.free()
}

// TestCloseUnderLoad: closing races with acquires, and ends.
func TestCloseUnderLoad(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	var ws []*call
	for range 50 {
		ws = append(ws, s.ask(e, brief("n")))
	}
	time.Sleep(10 * time.Millisecond)
	_ = e.Close()
	for _, w := range ws {
		if h, err := w.ended(); err == nil {
			h.free()
		} else if !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
	s.hold(s.engine(nil), request("n")).free()
}

// TestCloseOfASilentServer does not wait for it.
func TestCloseOfASilentServer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	s.hold(a, request("n"))
	s.queue(b, request("n"))
	s.server.Freeze(t)
	begun := time.Now()
	_ = b.Close()
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("it took %v", took)
	} else {
		t.Logf("it took %v", took)
	}
	s.server.Thaw(t)
}
