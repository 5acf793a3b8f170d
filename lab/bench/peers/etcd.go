package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// etcdWaiterExpired lets the lease of a waiter expire, and measures how long its Lock stays blocked.
// fencelock's waiters have no lease of their own to lose: their connection is cut for as long.
func etcdWaiterExpired(b *bed) []finding {
	const longest = 8 * time.Second
	server := startEtcd(b)
	holder := b.client(spec{Kind: "etcd mutex", Addrs: []string{server.addr}, TTL: 30 * time.Second}).(etcdClient)
	held, err := holder.acquire(context.Background(), "job")
	b.must(err)
	session, err := concurrency.NewSession(holder.conn, concurrency.WithTTL(30))
	b.must(err)
	blocked := b.blocked(longest, func(ctx context.Context) error {
		return concurrency.NewMutex(session, "/lock/job").Lock(ctx)
	}, func() {
		_, err := holder.conn.Revoke(context.Background(), session.Lease())
		b.must(err)
	})
	b.must(held.release())

	r := redistest.StartRedis(b)
	p := b.proxy(r.Addr())
	first := b.client(spec{Kind: "fencelock, Redis", Addrs: []string{r.Addr()}, TTL: 5 * time.Second})
	second := b.client(spec{Kind: "fencelock, Redis", Addrs: []string{p.Addr()}, TTL: 5 * time.Second})
	held, err = first.acquire(context.Background(), "job")
	b.must(err)
	got := make(chan error, 1)
	go func() { // ends with the release below
		h, err := second.acquire(context.Background(), "job")
		if err == nil {
			err = h.release()
		}
		got <- err
	}()
	time.Sleep(500 * time.Millisecond)
	p.Drop(faults.Both)
	time.Sleep(7 * time.Second) // longer than the lease
	b.must(p.Heal())
	begun := time.Now()
	b.must(held.release())
	b.must(<-got)
	took := time.Since(begun)
	return []finding{
		{subject: "etcd mutex", shows: blocked >= longest, wanted: true, took: blocked,
			seen: fmt.Sprintf("Lock is still blocked %s after the session has ended, and can no longer succeed", round(blocked))},
		{subject: "fencelock, Redis", shows: took > longest, took: took,
			seen: fmt.Sprintf("the waiter, cut off for 7 s, holds the lock %s after its release", round(took))},
	}
}

// blocked starts a call, breaks what it needs, and returns how long the call then takes, at most
// longest.
func (b *bed) blocked(longest time.Duration, call func(context.Context) error, spoil func()) time.Duration {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- call(ctx) }() // ends with ctx
	time.Sleep(500 * time.Millisecond)
	spoil()
	begun := time.Now()
	select {
	case <-done:
	case <-time.After(longest):
	}
	return time.Since(begun)
}

// etcdStaleUnlock repeats an Unlock whose reply was lost, after the same session has locked the name
// again, and tries whether another session can then lock it. fencelock repeats a Release.
func etcdStaleUnlock(b *bed) []finding {
	server := startEtcd(b)
	c := b.client(spec{Kind: "etcd mutex", Addrs: []string{server.addr}, TTL: 30 * time.Second}).(etcdClient)
	ctx := context.Background()
	session, err := concurrency.NewSession(c.conn, concurrency.WithTTL(30))
	b.must(err)
	old, current := concurrency.NewMutex(session, "/lock/job"), concurrency.NewMutex(session, "/lock/job")
	b.must(old.Lock(ctx))
	_, err = c.conn.Delete(ctx, old.Key()) // what an Unlock does; its caller gets no reply
	b.must(err)
	b.must(current.Lock(ctx))
	b.must(old.Unlock(ctx)) // the caller tries again
	other, err := concurrency.NewSession(c.conn, concurrency.WithTTL(30))
	b.must(err)
	theirs := concurrency.NewMutex(other, "/lock/job").TryLock(ctx) == nil

	ours := b.client(spec{Kind: "fencelock, Redis", Addrs: []string{redistest.StartRedis(b).Addr()}, TTL: 5 * time.Second}).(fencelockClient)
	first, err := ours.locks.Acquire(ctx, "job")
	b.must(err)
	b.must(first.Release())
	second, err := ours.locks.Acquire(ctx, "job")
	b.must(err)
	b.must(first.Release())
	_, err = ours.locks.TryAcquire(ctx, "job")
	own := err == nil
	b.must(errors.Join(second.Err(), second.Release()))
	verdict := map[bool]string{true: "a second session acquires the lock while the first one holds it", false: "the lock stays held"}
	return []finding{
		{subject: "etcd mutex", shows: theirs, wanted: true, seen: verdict[theirs]},
		{subject: "fencelock, Redis", shows: own, seen: verdict[own]},
	}
}
