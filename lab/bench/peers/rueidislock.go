package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockHang delays the replies to one acquire by 100 ms, heals the network, and measures how
// long the acquire then takes. Nobody else uses the name.
func rueidislockHang(b *bed) []finding {
	server := redistest.StartRedis(b)
	theirs := b.proxy(server.Addr())
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{theirs.Addr()}},
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	b.must(err)
	b.Cleanup(locks.Close)
	ours := b.proxy(server.Addr())
	return []finding{
		hangs(b, "rueidislock", theirs, rueidislockClient{locks}, true),
		hangs(b, "fencelock, Redis", ours, b.client(spec{Kind: "fencelock, Redis", Addrs: []string{ours.Addr()}, TTL: 5 * time.Second}), false),
	}
}

func hangs(b *bed, subject string, p *faults.Proxy, c client, wanted bool) finding {
	warm(b, subject, c)
	p.Delay(faults.ToClient, 100*time.Millisecond)
	heal := time.AfterFunc(90*time.Millisecond, func() { _ = p.Heal() })
	defer heal.Stop()
	const patience = 15 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begun := time.Now()
	h, err := c.acquire(ctx, "job "+subject)
	took := time.Since(begun)
	if err != nil {
		return finding{subject: subject, shows: true, wanted: wanted, took: took,
			seen: fmt.Sprintf("acquires nothing in %s, although the name is free (%v)", round(took), err)}
	}
	b.must(h.release())
	return finding{subject: subject, shows: took > patience/2, wanted: wanted, took: took,
		seen: fmt.Sprintf("acquires the lock after %s", round(took))}
}

// warm opens the connections of a client. On a busy machine a reply can be late by itself, and then
// rueidislock hangs here, so each name has a second only.
func warm(b *bed, subject string, c client) {
	for i := range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		h, err := c.acquire(ctx, fmt.Sprintf("warm %s %d", subject, i))
		if err == nil {
			b.must(h.release())
			cancel()
			return
		}
		cancel()
	}
	b.Fatalf("%s acquires nothing", subject)
}
