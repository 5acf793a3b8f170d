//go:build unix

package ratelimit_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/ratelimit"
	"github.com/fencelock/fencelock/redislock"
)

// wire keeps what is sent through the connections that it dials.
type wire struct {
	mu   sync.Mutex // guards sent
	sent [][]byte
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	return &recorded{conn, w}, err
}

type recorded struct {
	net.Conn
	wire *wire
}

func (r *recorded) Write(p []byte) (int, error) {
	r.wire.mu.Lock()
	r.wire.sent = append(r.wire.sent, bytes.Clone(p))
	r.wire.mu.Unlock()
	return r.Conn.Write(p)
}

// with returns what was sent that has a text in it.
func (w *wire) with(text string) [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.sent), func(b []byte) bool { return !bytes.Contains(b, []byte(text)) })
}

// wired connects to a server through a wire.
var wired = map[string]func(t *testing.T) func(*wire) (driver.RateLimiter, error){
	"redis": func(t *testing.T) func(*wire) (driver.RateLimiter, error) {
		at := redistest.StartRedis(t).Addr()
		return func(w *wire) (driver.RateLimiter, error) {
			dial := func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return w.dial(ctx, "tcp", addr)
			}
			client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{at}, DisableCache: true, DialCtxFn: dial})
			if err != nil {
				return nil, err
			}
			t.Cleanup(client.Close)
			e := redislock.New(client, &redislock.Config{RetryTimeout: time.Minute})
			t.Cleanup(func() { _ = e.Close() })
			return e, nil
		}
	},
	"postgres": func(t *testing.T) func(*wire) (driver.RateLimiter, error) {
		at := pgtest.StartPostgres(t).DSN()
		return func(w *wire) (driver.RateLimiter, error) {
			cfg, err := pgxpool.ParseConfig(at)
			if err != nil {
				return nil, err
			}
			cfg.ConnConfig.DialFunc = w.dial
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				return nil, err
			}
			t.Cleanup(pool.Close)
			e := pglock.New(pool, nil)
			t.Cleanup(func() { _ = e.Close() })
			return e, nil
		}
	},
}

// TestNoClockOfAClientCounts: what a take sends is the same, byte for byte, whenever it is
// sent and by whichever client. So no reading of a client's clock enters, however far
// apart their clocks are.
func TestNoClockOfAClientCounts(t *testing.T) {
	for kind, start := range wired {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			connect := start(t)
			different := map[string]int{}
			for range 2 {
				w := &wire{}
				engine, err := connect(w)
				if err != nil {
					t.Fatal(err)
				}
				l := ratelimit.New(engine, "fleet", ratelimit.PerSecond(100), patient)
				take := func() {
					if _, err := l.Allow(t.Context(), "key"); err != nil {
						t.Fatal(err)
					}
				}
				take() // which also gives the server its script
				known := len(w.with("fleet:key"))
				take()
				time.Sleep(1100 * time.Millisecond) // so that even a clock of whole seconds shows another time
				take()
				sent := w.with("fleet:key")[known:]
				if len(sent) < 2 {
					t.Errorf("two takes sent %q", sent)
				}
				for _, message := range sent {
					different[string(message)]++
				}
			}
			if len(different) != 1 {
				t.Errorf("%d different messages: %v", len(different), slices.Collect(maps.Keys(different)))
			}
		})
	}
}
