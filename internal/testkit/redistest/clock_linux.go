package redistest

import "github.com/fencelock/fencelock/internal/testkit/hosttest"

// StartRedisBy is StartRedis for a server that uses a clock, also after restarts.
func StartRedisBy(t hosttest.TB, c *hosttest.Clock, args ...string) *Redis {
	t.Helper()
	r := &Redis{settings: args, env: c.Env()}
	r.launch(t)
	return r
}
