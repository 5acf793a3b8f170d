package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/go-redsync/redsync/v4"
)

// nodes starts three servers, each behind a proxy.
func nodes(b *bed) (servers []*redistest.Redis, proxies []*faults.Proxy, addrs []string) {
	for range 3 {
		s := redistest.StartRedis(b)
		p := b.proxy(s.Addr())
		servers, proxies, addrs = append(servers, s), append(proxies, p), append(addrs, p.Addr())
	}
	return servers, proxies, addrs
}

// proxy starts a proxy that ends with the scenario.
func (b *bed) proxy(target string) *faults.Proxy {
	p, err := faults.NewProxy(target)
	b.must(err)
	b.Cleanup(func() { _ = p.Close() })
	return p
}

// redsyncCancelled cancels an acquire while it has one of three nodes, and another client's lock is
// on the other two. It measures how long the name then stays taken on the first node.
func redsyncCancelled(b *bed) []finding {
	const ttl = 8 * time.Second // redsync's default
	return []finding{
		cancelled(b, spec{Kind: "redsync", TTL: ttl}, "job", true),
		cancelled(b, spec{Kind: "fencelock, Redlock", TTL: ttl}, "lock:job", false),
	}
}

func cancelled(b *bed, s spec, key string, wanted bool) finding {
	servers, proxies, addrs := nodes(b)
	s.Addrs = addrs
	if strings.HasPrefix(s.Kind, "fencelock") {
		initEngine(b, s)
	}
	c := b.client(s)
	h, err := c.acquire(context.Background(), "warm") // opens the connections
	b.must(err)
	b.must(h.release())
	for _, r := range servers[1:] {
		r.Do(b, "SET", key, "another client", "PX", "60000")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer proxies[0].OnRequest(key, cancel)()
	if h, err := c.acquire(ctx, "job"); err == nil {
		_ = h.release()
		b.Fatal("the lock was acquired although another client has it")
	}
	begun := time.Now()
	gone := b.until(s.TTL+5*time.Second, func() bool { return servers[0].Do(b, "EXISTS", key) == "0" }).Sub(begun)
	return finding{
		subject: s.Kind, shows: gone > s.TTL/2, wanted: wanted, took: gone,
		seen: fmt.Sprintf("the key stays for %s after the acquire has returned; the TTL is %s", round(gone), round(s.TTL)),
	}
}

// until calls ok every 5 ms until it returns true, and returns when that was.
func (b *bed) until(most time.Duration, ok func() bool) time.Time {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return time.Now()
		}
	}
	b.Fatal(errors.New("it did not happen in " + most.String()))
	return time.Time{}
}

// redsyncExtend lets a lock expire, another client take and release the name, and the first client
// extend its lock, with the option that sets missing keys again.
func redsyncExtend(b *bed) []finding {
	const ttl = time.Second
	r := redistest.StartRedis(b)
	p := b.proxy(r.Addr())
	ctx := context.Background()
	old := newRedsync(spec{Addrs: []string{r.Addr()}, TTL: ttl}, false)
	b.Cleanup(old.close)
	mutex := old.locks.NewMutex("job", redsync.WithExpiry(ttl), redsync.WithSetNXOnExtend())
	b.must(mutex.LockContext(ctx))
	next := old.locks.NewMutex("job", redsync.WithExpiry(ttl))
	b.must(next.LockContext(ctx))
	_, err := next.UnlockContext(ctx)
	b.must(err)
	extended, _ := mutex.ExtendContext(ctx)

	first := b.client(spec{Kind: "fencelock, Redis", Addrs: []string{p.Addr()}, TTL: ttl}).(fencelockClient)
	second := b.client(spec{Kind: "fencelock, Redis", Addrs: []string{r.Addr()}, TTL: ttl})
	lock, err := first.locks.Acquire(ctx, "job2")
	b.must(err)
	p.Drop(faults.Both) // no renewal arrives
	successor, err := second.acquire(ctx, "job2")
	b.must(err)
	b.must(successor.release())
	b.must(p.Heal())
	time.Sleep(ttl)
	verdict := map[bool]string{
		true:  "holds the lock again, after another client has held and released it",
		false: "stays lost",
	}
	held := lock.Err() == nil
	return []finding{
		{subject: "redsync", shows: extended, wanted: true, seen: "the old lock " + verdict[extended]},
		{subject: "fencelock, Redis", shows: held, seen: "the old lock " + verdict[held]},
	}
}

// redsyncHungNode freezes one of three nodes and measures an acquire and release.
func redsyncHungNode(b *bed) []finding {
	const ttl = 8 * time.Second
	return []finding{
		hungNode(b, spec{Kind: "redsync", TTL: ttl}, true),
		hungNode(b, spec{Kind: "fencelock, Redlock", TTL: ttl}, false),
	}
}

func hungNode(b *bed, s spec, wanted bool) finding {
	var servers []*redistest.Redis
	servers, _, s.Addrs = nodes(b)
	if strings.HasPrefix(s.Kind, "fencelock") {
		initEngine(b, s)
	}
	c := b.client(s)
	h, err := c.acquire(context.Background(), "warm")
	b.must(err)
	b.must(h.release())
	servers[2].Freeze(b)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	begun := time.Now()
	h, err = c.acquire(ctx, "job")
	if err == nil {
		err = h.release()
	}
	took := time.Since(begun)
	f := finding{subject: s.Kind, shows: took > s.TTL/2, wanted: wanted, took: took,
		seen: fmt.Sprintf("acquire and release take %s", round(took))}
	if err != nil {
		f.seen += fmt.Sprintf(" and fail: %v", err)
	}
	return f
}
