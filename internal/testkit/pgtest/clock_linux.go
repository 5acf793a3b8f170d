package pgtest

import "github.com/fencelock/fencelock/internal/testkit/hosttest"

// StartPostgresBy is StartPostgres for a server that uses a clock, also after restarts.
func StartPostgresBy(t hosttest.TB, c *hosttest.Clock, settings ...string) *Postgres {
	t.Helper()
	p := newPostgres(newHome(t, "pg"), settings)
	p.env = c.Env()
	copyTemplate(t, bare, p.home, p.data())
	p.launch(t)
	return p
}
