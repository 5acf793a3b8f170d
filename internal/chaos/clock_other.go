//go:build unix && !linux

package chaos

import (
	"time"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// The clocks of servers can be set on Linux only.

func redisWithClock(t hosttest.TB, settings []string) (*redistest.Redis, func(time.Duration)) {
	return redistest.StartRedis(t, settings...), nil
}

func postgresWithClock(t hosttest.TB, settings []string) (*pgtest.Postgres, func(time.Duration)) {
	return pgtest.StartPostgres(t, settings...), nil
}
