package redislock_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redislock"
)

// TestSplitBrain: a replica is promoted, and the old master lives on in a part of its
// own, where a holder renews for as long as it may. The promoted one grants after
// that.
func TestSplitBrain(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: failover, with Quarantine and min-replicas-to-write", verdict.Safe)
	s := newScene(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")
	link, err := faults.NewProxy(s.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Close() })
	replica := redistest.StartRedis(t)
	_, port, _ := net.SplitHostPort(link.Addr())
	replica.Replicaof(t, "127.0.0.1", port)
	s.server.WaitReplicas(t, 1)
	s.lag = 2 * time.Second
	a := s.careful()
	if err := a.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	req := driver.Request{Name: "n", TTL: 2 * time.Second}
	h := hold{scene: s, engine: a, req: req}
	s.until("a lock that the replica has", func() bool {
		if h.renew() != nil {
			h.Grant, _ = a.Acquire(t.Context(), req)
		}
		return replica.Do(t, "EXISTS", "lock:n", "fencelock:incarnation") == "2"
	})
	link.Drop(faults.Both)
	replica.Replicaof(t, "no", "one")
	old := s
	s.server = replica
	s.looks = &observer{}
	b := s.careful()
	ended := make(chan time.Time, 1) // when the last lease of the old master ends
	go func() {                      // ends when a renewal is refused for a TTL
		last := time.Now()
		for time.Since(last) < req.TTL {
			sent := time.Now()
			if h.renew() == nil {
				last = sent
			}
			time.Sleep(50 * time.Millisecond)
		}
		ended <- last.Add(req.TTL)
	}()
	wait := req
	wait.Wait = true
	g := s.ask(b, wait).granted()
	select {
	case end := <-ended:
		if early := end.Sub(g.Sent); early > 0 {
			t.Errorf("two holders for %v", early)
		}
		t.Logf("%v between the two", g.Sent.Sub(end))
	case <-time.After(patience):
		t.Errorf("two holders: the old master still renews")
	}
	if _, err := old.engine(&redislock.Config{RetryTimeout: time.Second}).Acquire(t.Context(), try(brief("other"))); err == nil {
		t.Error("the old master grants")
	}
}

// TestQuarantineRefusesReplicas: a master with replicas that would not stop when it
// is cut off is refused, at the first acquire and after a reconnect, until its settings
// and ours agree.
func TestQuarantineRefusesReplicas(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lag = 10 * time.Second
	e := s.careful()
	if err := e.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.hold(e, try(brief("n"))).free() // no replicas
	redistest.StartRedisReplica(t, s.server)
	_, err := s.careful().Acquire(t.Context(), try(brief("n")))
	s.says(err, driver.ErrConfig, "min-replicas-to-write")
	e.Doubt()
	_, err = e.Acquire(t.Context(), try(brief("n")))
	s.says(err, driver.ErrConfig, "min-replicas-to-write")
	s.server.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	s.server.WaitReplicas(t, 1)
	if err := e.Init(t.Context()); err != nil { // the first replica made another incarnation of it
		t.Fatal(err)
	}
	s.hold(e, try(brief("n"))).free()
	s.lag = time.Second
	_, err = s.careful().Acquire(t.Context(), try(brief("n")))
	s.says(err, driver.ErrConfig, "min-replicas-max-lag is 10 s")
	s.server.Do(t, "ACL", "SETUSER", "default", "-config|get")
	_, err = s.careful().Acquire(t.Context(), try(brief("n")))
	s.says(err, driver.ErrConfig, "+config|get")
}

// TestEvictionAfterReconnect: a server that has begun to evict keys is refused after a
// call has failed or the subscription was cut, as another server would be that took its
// place.
func TestEvictionAfterReconnect(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	s.warm(e)
	s.server.Do(t, "CONFIG", "SET", "maxmemory", "100mb")
	s.server.Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	tap.loseReply(redislock.AcquireScript, func(redisconn.Reply) {})
	refused := func() error {
		_, err := e.Acquire(context.Background(), try(brief("n")))
		if err == nil {
			s.server.Do(t, "DEL", "lock:n")
		}
		return err
	}
	if err := errors.Join(refused(), refused()); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("after an error of the connection: %v", err)
	}

	s.server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	e = s.engine(nil)
	s.hold(e, request("n")).free()
	s.ready(e)
	s.server.Do(t, "CONFIG", "SET", "maxmemory", "100mb")
	s.server.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	s.until("refused after the subscription broke", func() bool { return errors.Is(refused(), driver.ErrConfig) })
}
