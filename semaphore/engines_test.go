//go:build unix

package semaphore_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/internal/testkit/engines"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/semaphore"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
)

func TestMain(m *testing.M) {
	work()
	os.Exit(m.Run())
}

// slow is set for the fleets of full size, on every engine.
var slow = os.Getenv("FENCELOCK_SLOW") != ""

// store says where processes find an engine.
type store struct {
	Kind string // files, redis or postgres
	At   string // a directory, an address or a DSN
}

// open returns a client of the store, which ends with the process.
func (s store) open() (driver.Engine, error) {
	switch s.Kind {
	case "files":
		return filelock.New(s.At, nil), nil
	case "redis":
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.At}, DisableCache: true})
		if err != nil {
			return nil, err
		}
		return redislock.New(client, nil), nil
	case "postgres":
		pool, err := pgxpool.New(context.Background(), s.At)
		if err != nil {
			return nil, err
		}
		return pglock.New(pool, &pglock.Config{MaxTTL: longTTL}), nil
	}
	return nil, fmt.Errorf("no engine %q", s.Kind)
}

// stores are the engines with limits, each on a server of its own.
var stores = map[string]func(t *testing.T) store{
	"files": func(t *testing.T) store {
		dir, err := os.MkdirTemp("", "fencelock-semaphore-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		return store{"files", dir}
	},
	"redis": func(t *testing.T) store { return store{"redis", redistest.StartRedis(t).Addr()} },
	"postgres": func(t *testing.T) store {
		return store{"postgres", pgtest.StartPostgres(t, "max_connections=300").DSN()}
	},
}

// eachStore runs a test on every engine with limits; in an ordinary run, without
// PostgreSQL.
func eachStore(t *testing.T, test func(t *testing.T, s store)) {
	for kind, start := range stores {
		if kind != "postgres" || slow {
			t.Run(kind, func(t *testing.T) { test(t, start(t)) })
		}
	}
}

// visit makes a client of the store for the test itself.
func visit(t *testing.T, s store) (*semaphore.Semaphore, *fencelock.Locker) {
	t.Helper()
	engine, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	if closer, ok := engine.(interface{ Close() error }); ok {
		t.Cleanup(func() { _ = closer.Close() })
	}
	locks := fencelock.New(engine, &fencelock.Config{TTL: longTTL})
	return semaphore.New(locks, name, size), locks
}

// A majority cannot count holders, and says so.
func TestEnginesWithoutLimits(t *testing.T) {
	locks := fencelock.New(engines.All(fleetTTL)["redlock"](t)(), &fencelock.Config{TTL: fleetTTL})
	s := semaphore.New(locks, name, size)
	_, err := s.TryAcquire(t.Context(), 1)
	want(t, "TryAcquire", err, fencelock.ErrUnsupported)
	_, err = s.Acquire(t.Context(), 2)
	want(t, "Acquire", err, fencelock.ErrUnsupported)
	want(t, "Do", s.Do(t.Context(), 1, nil), fencelock.ErrUnsupported)
	want(t, "Resize", s.Resize(t.Context(), 3), fencelock.ErrUnsupported)
	if got := fmt.Sprint(err); got != "not supported by this engine: redlock has no shared mode with a limit" {
		t.Error(got)
	}
}
