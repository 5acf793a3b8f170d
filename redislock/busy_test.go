package redislock_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/redis/go-redis/v9"
)

// TestBusyServer: while somebody's script keeps the server busy, every command is answered
// by an error. The program lives through that, whatever its client is doing, and nobody
// gets a lock that another one has.
func TestBusyServer(t *testing.T) {
	t.Parallel()
	s := newScene(t, "--lua-time-limit", "50")
	addr := s.server.Addr()
	pipelined, pinging := rueidisOption(addr), rueidisOption(addr)
	pipelined.AlwaysPipelining = true
	pinging.Dialer.KeepAlive = 20 * time.Millisecond // it begins to pipeline a connection that it pings when it is used
	clients := map[string]func() *redislock.Engine{
		"rueidis":   func() *redislock.Engine { return redislock.New(rueidisClient(t, rueidisOption(addr)), nil) },
		"pipelined": func() *redislock.Engine { return redislock.New(rueidisClient(t, pipelined), nil) },
		"pinging":   func() *redislock.Engine { return redislock.New(rueidisClient(t, pinging), nil) },
		"go-redis": func() *redislock.Engine {
			client := redis.NewClient(&redis.Options{Addr: addr})
			t.Cleanup(func() { _ = client.Close() })
			return goredis.New(client, nil)
		},
	}
	b := &busyScene{scene: s}
	for round := range 8 { // the clients of the ones before go on
		for kind, open := range clients {
			e := open()
			t.Cleanup(func() { _ = e.Close() })
			s.hold(e, request(kind+strconv.Itoa(round))).free() // it has connections that work
			b.all.Go(func() { b.contend(t.Context(), e, "contended") })
			b.all.Go(func() { b.alone(t.Context(), e, kind+strconv.Itoa(round)) })
		}
		keepBusy(t, s.server, 300*time.Millisecond)
		time.Sleep(200 * time.Millisecond)
	}
	b.end.Store(true)
	b.all.Wait()
	t.Logf("%d locks", b.locks.Load())
	if b.overlaps.Load() > 0 {
		t.Errorf("%d overlaps", b.overlaps.Load())
	}
	if b.locks.Load() == 0 {
		t.Error("nobody got a lock")
	}
}

// keepBusy has a script run for so long on the server.
func keepBusy(t *testing.T, server *redistest.Redis, long time.Duration) {
	done := make(chan struct{})
	go func() { // ends when the script is killed
		defer close(done)
		_, _ = server.TryDo("EVAL", "while true do end", "0")
	}()
	time.Sleep(long)
	for killed := false; !killed; time.Sleep(10 * time.Millisecond) {
		_, err := server.TryDo("SCRIPT", "KILL")
		killed = err == nil
	}
	<-done
}

type busyScene struct {
	scene
	all                     sync.WaitGroup
	end                     atomic.Bool
	inside, overlaps, locks atomic.Int64
}

// contend takes a lock that others want as well, and often gives up.
func (b *busyScene) contend(ctx context.Context, e *redislock.Engine, name string) {
	for !b.end.Load() {
		limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		g, err := e.Acquire(limited, driver.Request{Name: name, TTL: time.Minute, Wait: true})
		cancel()
		if err != nil {
			continue
		}
		if b.inside.Add(1) > 1 {
			b.overlaps.Add(1)
		}
		b.locks.Add(1)
		time.Sleep(time.Millisecond)
		b.inside.Add(-1)
		b.give(e, driver.Lease{Name: name, Owner: g.Owner, Token: g.Token, TTL: time.Minute})
	}
}

// alone takes a lock that nobody else wants.
func (b *busyScene) alone(ctx context.Context, e *redislock.Engine, name string) {
	for !b.end.Load() {
		g, err := e.Acquire(ctx, driver.Request{Name: name, TTL: time.Minute})
		if err == nil {
			b.locks.Add(1)
			b.give(e, driver.Lease{Name: name, Owner: g.Owner, Token: g.Token, TTL: time.Minute})
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// give releases until that is known to have worked.
func (b *busyScene) give(e *redislock.Engine, l driver.Lease) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err := e.Release(context.Background(), l); err == nil || errors.Is(err, driver.ErrNotHeld) {
			return
		}
	}
	b.Errorf("%q was not released", l.Name)
}
