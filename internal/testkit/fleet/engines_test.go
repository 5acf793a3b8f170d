//go:build unix

package fleet_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

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

// An engine that a member of the fleet opens by an address.
type engine struct {
	start func(testing.TB) (addr string)
	open  func(addr string) (driver.Engine, error)
}

var engines = map[string]engine{
	"files": {
		func(t testing.TB) string { return makeDir(t) },
		func(dir string) (driver.Engine, error) { return filelock.New(dir, nil), nil },
	},
	"redis": {
		func(t testing.TB) string { return redistest.StartRedis(t).Addr() },
		func(addr string) (driver.Engine, error) {
			client, err := dial(addr)
			return redislock.New(client, nil), err
		},
	},
	"redlock": {startMasters, func(addrs string) (driver.Engine, error) { return masters(addrs) }},
	"postgres": {
		func(t testing.TB) string { return pgtest.StartPostgres(t, "max_connections=400").DSN() },
		func(dsn string) (driver.Engine, error) {
			pool, err := pgxpool.New(context.Background(), dsn)
			return pglock.New(pool, &pglock.Config{MaxTTL: ttl}), err
		},
	},
}

func startMasters(t testing.TB) string {
	t.Helper()
	var addrs []string
	for range 3 {
		addrs = append(addrs, redistest.StartRedis(t).Addr())
	}
	e, err := masters(strings.Join(addrs, ","))
	if err == nil {
		err = e.Init(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(addrs, ",")
}

func masters(addrs string) (*redlock.Engine, error) {
	var nodes []redlock.Node
	for addr := range strings.SplitSeq(addrs, ",") {
		client, err := dial(addr)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, redlock.Rueidis(client))
	}
	return redlock.New(nodes, &redlock.Config{MaxTTL: ttl}), nil
}

func dial(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
}

// open opens an engine by its kind. It ends with the process.
func open(kind, addr string) (driver.Engine, error) {
	e, ok := engines[kind]
	if !ok {
		return nil, fmt.Errorf("no engine %q", kind)
	}
	return e.open(addr)
}

func makeDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fencelock-fleet-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
