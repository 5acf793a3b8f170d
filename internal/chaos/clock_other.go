//go:build unix && !linux

package chaos

import (
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// The clocks of servers can be set on Linux only.

func redisWithClock(t hosttest.TB, settings []string) (*redistest.Redis, setter) {
	return redistest.StartRedis(t, settings...), nil
}

func postgresWithClock(t hosttest.TB, settings []string) (*pgtest.Postgres, setter) {
	return pgtest.StartPostgres(t, settings...), nil
}
