// Package engines starts a real server for each engine and opens it, for tests of packages that use
// locks.
package engines

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redlock"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
)

// A Store is the server or directory of one engine. It can be sent to another process as JSON.
type Store struct {
	Kind   string        // files, redis, redlock or postgres
	At     string        // a directory, addresses or a DSN
	MaxTTL time.Duration // longest TTL of the locks
}

// Connect returns a new client of a store, as in another process. It is closed at the end of the
// test.
type Connect func() driver.Engine

// patience is how long a client retries: on a busy machine the default is too short.
const patience = 20 * time.Second

// All returns functions that start each kind of store, for locks with a TTL of up to maxTTL.
func All(maxTTL time.Duration) map[string]func(testing.TB) Connect {
	all := map[string]func(testing.TB) Connect{}
	for _, kind := range []string{"files", "redis", "redlock", "postgres"} {
		all[kind] = func(t testing.TB) Connect {
			s := Start(t, kind, maxTTL)
			return func() driver.Engine { return s.Connect(t) }
		}
	}
	return all
}

// Start starts one store.
func Start(t testing.TB, kind string, maxTTL time.Duration) Store {
	t.Helper()
	s := Store{Kind: kind, MaxTTL: maxTTL}
	switch kind {
	case "files":
		s.At = hosttest.Dir(t, "fencelock-engines-")
	case "redis":
		s.At = redistest.StartRedis(t).Addr()
	case "redlock":
		s.At = strings.Join([]string{redistest.StartRedis(t).Addr(), redistest.StartRedis(t).Addr(), redistest.StartRedis(t).Addr()}, " ")
	case "postgres":
		s.At = pgtest.StartPostgres(t, "max_connections=400").DSN()
	default:
		t.Fatalf("no engine %q", kind)
	}
	s.init(t)
	return s
}

// init sets up a store, as an administrator does: otherwise the first request would, within its own
// time limit, which can be too short for that on a busy machine.
func (s Store) init(t testing.TB) {
	t.Helper()
	e, ok := s.Connect(t).(interface{ Init(context.Context) error })
	if !ok {
		return
	}
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := e.Init(context.Background())
		if err == nil {
			return
		}
		if time.Since(start) > patience {
			t.Fatal(err)
		}
	}
}

// Connect returns a client that is closed at the end of the test.
func (s Store) Connect(t testing.TB) driver.Engine {
	t.Helper()
	e, end, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	if c, ok := e.(interface{ Close() error }); ok {
		t.Cleanup(func() { _ = c.Close() })
	}
	return e
}

// Open returns a client that is never closed.
func (s Store) Open() (driver.Engine, error) {
	e, _, err := s.open()
	return e, err
}

// open returns an engine, and what ends its connections when it is closed.
func (s Store) open() (e driver.Engine, end func(), err error) {
	switch s.Kind {
	case "files":
		return filelock.New(s.At, nil), func() {}, nil
	case "redis":
		client, err := dial(s.At)
		if err != nil {
			return nil, nil, err
		}
		return redislock.New(client, &redislock.Config{RetryTimeout: patience}), client.Close, nil
	case "redlock":
		return s.masters()
	case "postgres":
		pool, err := pgxpool.New(context.Background(), s.At)
		if err != nil {
			return nil, nil, err
		}
		return pglock.New(pool, &pglock.Config{MaxTTL: s.MaxTTL, Timeout: patience}), pool.Close, nil
	}
	return nil, nil, fmt.Errorf("no engine %q", s.Kind)
}

func (s Store) masters() (e driver.Engine, end func(), err error) {
	var nodes []redlock.Node
	var lazies []*redlock.Lazy
	for addr := range strings.FieldsSeq(s.At) {
		lazy := redlock.NewLazy(func() (rueidis.Client, error) { return dial(addr) })
		lazies, nodes = append(lazies, lazy), append(nodes, lazy)
	}
	return redlock.New(nodes, &redlock.Config{MaxTTL: s.MaxTTL, RetryTimeout: patience}), func() {
		for _, lazy := range lazies {
			lazy.Close()
		}
	}, nil
}

func dial(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
}
