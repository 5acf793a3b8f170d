package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redlock"
)

// TestListsApart: two lists without a majority in common are two lock services, and their tokens
// follow different clocks.
func TestListsApart(t *testing.T) {
	t.Parallel()
	one, other := startNodes(t, 3), startNodes(t, 3)
	ahead := time.Now().Add(time.Hour).UnixMicro()
	for _, r := range one {
		r.Do(t, "SET", "fence:{lock:x}", fmt.Sprintf("%d %d - 0", ahead, ahead), "PX", "600000")
	}
	first, _ := take(t, open(t, one.addrs(), redlock.Config{}), "x", long)
	second, _ := take(t, open(t, other.addrs(), redlock.Config{}), "x", long)
	verdict.Is(t, "Redlock: clients list different nodes, with less than a majority in common",
		verdict.Unsafe, verdict.OfHolders(nil, first.Token, second.Token))
}

// TestDeadWaiter: a waiter that dies keeps nobody from the lock.
func TestDeadWaiter(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redlock: a waiter dies", verdict.Safe)
	w := startNodes(t, 3)
	e, other := open(t, w.addrs(), redlock.Config{}), open(t, w.addrs(), redlock.Config{})
	_, l := take(t, e, "x", long)
	p := w.Client(t)
	waits, failed := make(chan struct{}), make(chan error, 1)
	go func() { // ends when the process is killed
		_, err := p.Acquire(context.Background(), driver.Request{Name: "x", TTL: time.Minute, Wait: true, OnWait: func(driver.WaitInfo) { close(waits) }})
		failed <- err
	}()
	select {
	case <-waits:
	case err := <-failed:
		t.Fatal(err)
	}
	p.Kill(t)
	release(t, e, l)
	begun := time.Now()
	retryAcquire(t, other, "x", long)
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("a dead waiter cost %v", took)
	}
}
