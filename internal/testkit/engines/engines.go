// Package engines opens each engine that ships on a real server of its own, for
// the tests of what is built on locks.
package engines

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redlock"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
)

// Connect returns another client of a store, as another process would be. It
// ends with the test.
type Connect func() driver.Engine

// All starts stores for locks of a TTL of maxTTL at most.
func All(maxTTL time.Duration) map[string]func(testing.TB) Connect {
	return map[string]func(testing.TB) Connect{
		"files":    files,
		"redis":    redis,
		"redlock":  func(t testing.TB) Connect { return masters(t, maxTTL) },
		"postgres": func(t testing.TB) Connect { return postgres(t, maxTTL) },
	}
}

func files(t testing.TB) Connect {
	t.Helper()
	dir, err := os.MkdirTemp("", "fencelock-engines-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return func() driver.Engine { return filelock.New(dir, nil) }
}

func redis(t testing.TB) Connect {
	t.Helper()
	server := redistest.StartRedis(t)
	return func() driver.Engine {
		e := redislock.New(dial(t, server), nil)
		t.Cleanup(func() { _ = e.Close() })
		return e
	}
}

func masters(t testing.TB, maxTTL time.Duration) Connect {
	t.Helper()
	servers := []*redistest.Redis{redistest.StartRedis(t), redistest.StartRedis(t), redistest.StartRedis(t)}
	connect := func() *redlock.Engine {
		var nodes []redlock.Node
		for _, s := range servers {
			nodes = append(nodes, redlock.Rueidis(dial(t, s)))
		}
		e := redlock.New(nodes, &redlock.Config{MaxTTL: maxTTL})
		t.Cleanup(func() { _ = e.Close() })
		return e
	}
	if err := connect().Init(context.Background()); err != nil {
		t.Fatal(err)
	}
	return func() driver.Engine { return connect() }
}

func dial(t testing.TB, server *redistest.Redis) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func postgres(t testing.TB, maxTTL time.Duration) Connect {
	t.Helper()
	server := pgtest.StartPostgres(t)
	return func() driver.Engine {
		pool, err := pgxpool.New(context.Background(), server.DSN())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		e := pglock.New(pool, &pglock.Config{MaxTTL: maxTTL})
		t.Cleanup(func() { _ = e.Close() })
		return e
	}
}
