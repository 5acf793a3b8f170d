//go:build unix

package cron_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
)

// Requests come late, answers are lost, connections are cut, and instances are started anew
// and make up for what they believe was missed: no tick is run twice.
func TestTicksUnderFaults(t *testing.T) {
	for name, serve := range map[string]func(*testing.T) (address, text string, open func(*testing.T, string) driver.Engine){
		"redis":    redisBehind,
		"postgres": postgresBehind,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, text, open := serve(t)
			books := newLedger()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var hosts sync.WaitGroup
			var proxies []*faults.Proxy
			for range 6 {
				proxy, err := faults.NewProxy(address)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = proxy.Close() })
				proxies = append(proxies, proxy)
				engine := open(t, proxy.Addr())
				hosts.Go(func() { // ends with ctx
					for ctx.Err() == nil {
						locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: 2 * time.Second})
						in := &instance{locks: locks, ledger: books}
						in.job = cron.New(locks, "job", &cron.Config{Late: 12 * time.Second, CatchUp: 200, Overlap: cron.OverlapAllow, OnTick: books.note})
						deploy(ctx, time.Duration(2+rand.IntN(3))*time.Second, cron.Every(100*time.Millisecond), 0, in)
					}
				})
			}
			for end := time.Now().Add(time.Minute); books.ran() == 0 && time.Now().Before(end); { // on a busy machine that takes long
				_ = idle(ctx, 10*time.Millisecond)
			}
			for i, proxy := range proxies {
				hosts.Go(func() { disturb(ctx, proxy, text, uint64(i)) }) // ends with ctx
			}
			length := 4 * time.Second
			if os.Getenv("FENCELOCK_SLOW") != "" {
				length = 20 * time.Second
			}
			_ = idle(ctx, length)
			cancel()
			hosts.Wait()
			books.mu.Lock()
			defer books.mu.Unlock()
			for tick, runs := range books.runs {
				if runs != 1 {
					t.Errorf("%v was run %d times", tick, runs)
				}
			}
			if len(books.runs) == 0 {
				t.Error("no tick was run")
			}
		})
	}
}

// disturb makes things go wrong between an instance and the server, until ctx ends.
func disturb(ctx context.Context, proxy *faults.Proxy, text string, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	for ctx.Err() == nil {
		switch rnd.IntN(6) {
		case 0:
			proxy.Reset()
		case 1:
			remove := proxy.Late(text, time.Duration(rnd.IntN(3000))*time.Millisecond)
			_ = idle(ctx, time.Duration(rnd.IntN(500))*time.Millisecond)
			proxy.Reset()
			remove()
		case 2, 3:
			proxy.SwallowReply(text)
		case 4:
			proxy.Stall(faults.Both)
			_ = idle(ctx, time.Duration(rnd.IntN(1500))*time.Millisecond)
			proxy.Resume()
		case 5:
			proxy.Drop(faults.ToClient)
			_ = idle(ctx, time.Duration(rnd.IntN(300))*time.Millisecond)
			_ = proxy.Heal()
		}
		_ = idle(ctx, time.Duration(rnd.IntN(600))*time.Millisecond)
	}
	_ = proxy.Heal()
}

// redisBehind starts a Redis. Its records are reached by keys that contain the text.
func redisBehind(t *testing.T) (address, text string, open func(*testing.T, string) driver.Engine) {
	server := redistest.StartRedis(t)
	return server.Addr(), "record:cron/job", func(t *testing.T, address string) driver.Engine {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		e := redislock.New(client, nil)
		t.Cleanup(func() { _ = e.Close() })
		return e
	}
}

// postgresBehind starts a PostgreSQL.
func postgresBehind(t *testing.T) (address, text string, open func(*testing.T, string) driver.Engine) {
	server := pgtest.StartPostgres(t)
	local := fmt.Sprint("127.0.0.1:", server.Port())
	return local, "cron/job", func(t *testing.T, address string) driver.Engine {
		pool, err := pgxpool.New(context.Background(), strings.Replace(server.DSN(), local, address, 1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		e := pglock.New(pool, &pglock.Config{MaxTTL: ttl})
		t.Cleanup(func() { _ = e.Close() })
		return e
	}
}

// A tick that too few replicas know of is not taken, however often its claim finds itself in the
// record.
func TestTickThatTooFewReplicasHave(t *testing.T) {
	server := redistest.StartRedis(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	e := redislock.New(client, &redislock.Config{MinReplicas: 1, RetryTimeout: 300 * time.Millisecond})
	t.Cleanup(func() { _ = e.Close() })
	job := cron.New(fencelock.New(e, nil), "job", &cron.Config{Late: 5 * time.Second})
	want(t, "Tick", job.Tick(t.Context(), time.Now(), nothing), fencelock.ErrUnavailable)
}
