package chaos

import (
	"os/exec"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// newClock returns a clock for a server, or nil if there is no C compiler to make one.
func newClock(t hosttest.TB) *hosttest.Clock {
	if _, err := exec.LookPath("cc"); err != nil {
		return nil
	}
	return hosttest.NewClock(t)
}

func redisWithClock(t hosttest.TB, settings []string) (*redistest.Redis, func(time.Duration)) {
	if c := newClock(t); c != nil {
		return redistest.StartRedisBy(t, c, settings...), c.Set
	}
	return redistest.StartRedis(t, settings...), nil
}

func postgresWithClock(t hosttest.TB, settings []string) (*pgtest.Postgres, func(time.Duration)) {
	if c := newClock(t); c != nil {
		return pgtest.StartPostgresBy(t, c, settings...), c.Set
	}
	return pgtest.StartPostgres(t, settings...), nil
}
