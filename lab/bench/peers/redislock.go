package main

import (
	"context"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	goredis9 "github.com/redis/go-redis/v9"
)

// redislockWait waits without a limit for a lock that is held for three times the TTL of the
// waiter's request.
func redislockWait(b *bed) []finding {
	const ttl = time.Second
	addr := redistest.StartRedis(b).Addr()
	theirs := b.client(spec{Kind: "bsm/redislock", Addrs: []string{addr}, TTL: 30 * time.Second}).(redislockClient)
	ours := b.client(spec{Kind: "fencelock, Redis", Addrs: []string{addr}, TTL: ttl})
	peer := waits(b, "bsm/redislock", theirs, func(ctx context.Context) error {
		retry := redislock.LinearBackoff(20 * time.Millisecond)
		l, err := theirs.locks.Obtain(ctx, "job", ttl, &redislock.Options{RetryStrategy: retry})
		if err != nil {
			return err
		}
		return l.Release(ctx)
	}, 3*ttl)
	peer.wanted = true
	return []finding{peer, waits(b, "fencelock, Redis", ours, func(ctx context.Context) error {
		h, err := ours.acquire(ctx, "job")
		if err != nil {
			return err
		}
		return h.release()
	}, 3*ttl)}
}

// waits holds job for a time while wait waits for it.
func waits(b *bed, subject string, holder client, wait func(context.Context) error, hold time.Duration) finding {
	held, err := holder.acquire(context.Background(), "job")
	b.must(err)
	timer := time.AfterFunc(hold, func() { _ = held.release() })
	defer timer.Stop()
	begun := time.Now()
	err = wait(context.Background())
	took := time.Since(begun)
	f := finding{subject: subject, shows: err != nil, took: took, seen: fmt.Sprintf("acquires the lock after %s", round(took))}
	if err != nil {
		f.seen = fmt.Sprintf("gives up after %s, the TTL of its request", round(took))
		b.until(2*hold, func() bool { // the name is free for the next subject
			h, err := holder.acquire(context.Background(), "job")
			return err == nil && h.release() == nil
		})
	}
	return f
}

// redislockReplyLost loses the reply to an acquire, and measures how long the lock that nobody has
// keeps others out.
func redislockReplyLost(b *bed) []finding {
	const ttl = 10 * time.Second
	r := redistest.StartRedis(b)
	theirs, ours := b.proxy(r.Addr()), b.proxy(r.Addr())
	conn := goredis9.NewClient(&goredis9.Options{Addr: theirs.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	b.Cleanup(func() { _ = conn.Close() })
	peer := redislock.New(conn)
	b.must(conn.Ping(context.Background()).Err())
	warm, err := peer.Obtain(context.Background(), "warm", ttl, nil)
	b.must(err)
	b.must(warm.Release(context.Background()))
	own := b.client(spec{Kind: "fencelock, Redis", Addrs: []string{ours.Addr()}, TTL: ttl}).(fencelockClient)
	h, err := own.acquire(context.Background(), "warm")
	b.must(err)
	b.must(h.release())
	const limit = 300 * time.Millisecond
	theirs.SwallowReply("peer:job")
	ours.SwallowReply("lock:job")
	return []finding{
		orphaned(b, "bsm/redislock", r, "peer:job", ttl, true, func(ctx context.Context) (hold, error) {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			l, err := peer.Obtain(ctx, "peer:job", ttl, nil)
			if err != nil {
				return nil, err
			}
			return redislockHold{l, keep(ttl, func(context.Context) error { return nil })}, nil
		}),
		orphaned(b, "fencelock, Redis", r, "lock:job", ttl, false, func(ctx context.Context) (hold, error) {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			return own.acquire(ctx, "job")
		}),
	}
}

func orphaned(b *bed, subject string, r *redistest.Redis, key string, ttl time.Duration, wanted bool, try func(context.Context) (hold, error)) finding {
	h, err := try(context.Background())
	if err == nil {
		b.must(h.release())
		return finding{subject: subject, wanted: wanted, seen: "asks again on another connection, and acquires the lock"}
	}
	begun := time.Now()
	gone := b.until(ttl+5*time.Second, func() bool { return r.Do(b, "EXISTS", key) == "0" }).Sub(begun)
	return finding{subject: subject, shows: gone > ttl/2, wanted: wanted, took: gone,
		seen: fmt.Sprintf("the key stays for %s after the failed acquire; the TTL is %s", round(gone), round(ttl))}
}
