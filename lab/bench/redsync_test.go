package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/redlock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// On the same nodes, a lock of redsync's keeps ours out, and ours keeps out
// redsync's: its name is the key of our lock.
func TestRedsyncAndOursExcludeEachOther(t *testing.T) {
	servers, err := startNodes(5)
	if err != nil {
		t.Fatal(err)
	}
	defer servers.stop()
	var conns []redlock.Node
	var pools []redsyncredis.Pool
	for _, addr := range strings.Split(servers.addr(), ",") {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		conns = append(conns, redlock.Rueidis(client))
		other := goredislib.NewClient(&goredislib.Options{Addr: addr})
		defer func() { _ = other.Close() }()
		pools = append(pools, goredis.NewPool(other))
	}
	engine := redlock.New(conns, nil)
	defer func() { _ = engine.Close() }()
	if err := engine.Init(context.Background()); err != nil {
		t.Fatal(err)
	}
	ours := fencelock.New(engine, nil)
	theirs := redsync.New(pools...).NewMutex("lock:x", redsync.WithExpiry(20*time.Second))

	lock, err := ours.TryAcquire(context.Background(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := theirs.TryLock(); err == nil {
		t.Error("redsync has a lock that we hold")
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Lock(); err != nil {
		t.Fatal("after our release:", err)
	}
	if _, err := ours.TryAcquire(context.Background(), "x"); !errors.Is(err, fencelock.ErrHeld) {
		t.Errorf("while redsync holds the lock: %v", err)
	}
	if ok, err := theirs.Unlock(); !ok || err != nil {
		t.Fatal("unlock:", ok, err)
	}
	lock, err = ours.Acquire(context.Background(), "x")
	if err != nil {
		t.Fatal("after theirs:", err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}
