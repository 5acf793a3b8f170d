//go:build unix

package engineurl_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/pglock"
)

// postgresReading has the fields of a parsed URL that the tests compare.
type postgresReading struct {
	Host                     string
	Port                     uint16
	User, Password, Database string
	Hosts                    int // in addition to the first
	App                      string
	PerHost, Limit           time.Duration
	Engine                   pglock.Config
}

func readPostgres(t *testing.T, raw string) postgresReading {
	t.Helper()
	pool, engine, limit, err := engineurl.ParsePostgres(parse(t, raw))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	c := pool.ConnConfig
	for name := range c.RuntimeParams {
		if name != "application_name" && name != "search_path" {
			t.Errorf("%s: the server gets %s", raw, name)
		}
	}
	return postgresReading{
		Host: c.Host, Port: c.Port, User: c.User, Password: c.Password, Database: c.Database, Hosts: len(c.Fallbacks),
		App: c.RuntimeParams["application_name"], PerHost: c.ConnectTimeout, Limit: limit, Engine: engine,
	}
}

func TestParsePostgres(t *testing.T) {
	for _, name := range []string{"PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGAPPNAME", "PGSSLMODE", "PGSERVICE", "PGPASSFILE"} {
		t.Setenv(name, "")
	}
	for raw, want := range map[string]postgresReading{
		"postgres://u:p%2Fq@h/db?sslmode=disable": {
			Host: "h", Port: 5432, User: "u", Password: "p/q", Database: "db", PerHost: 4 * time.Second, Limit: 4 * time.Second},
		"postgresql://u@h1:1,h2:2/db?sslmode=disable&application_name=a%20b+c": {
			Host: "h1", Port: 1, User: "u", Database: "db", Hosts: 1, App: "a b+c", PerHost: 2 * time.Second, Limit: 4 * time.Second},
		"postgres://u@[::1]:1/db?sslmode=disable&connect_timeout=9": {
			Host: "::1", Port: 1, User: "u", Database: "db", PerHost: 9 * time.Second, Limit: 10 * time.Second},
		"postgres://u@h/db?sslmode=disable&pooler=allow&max-ttl=1m&max-waiters=3&break-wait=5s&search_path=x": {
			Host: "h", Port: 5432, User: "u", Database: "db", PerHost: 4 * time.Second, Limit: 4 * time.Second,
			Engine: pglock.Config{AllowPooler: true, MaxTTL: time.Minute, MaxWaiters: 3, BreakWait: 5 * time.Second}},
	} {
		if d := cmp.Diff(want, readPostgres(t, raw)); d != "" {
			t.Errorf("%s (-want +got):\n%s", raw, d)
		}
	}
}

// TestPostgresTimesBeyondTheServers: PostgreSQL has no such timeouts.
func TestPostgresTimesBeyondTheServers(t *testing.T) {
	for _, name := range []string{"max-ttl", "timeout"} {
		_, _, _, err := engineurl.ParsePostgres(parse(t, "postgres://u@h/db?sslmode=disable&"+name+"=597h"))
		if err == nil || !strings.Contains(err.Error(), name+"=597h: PostgreSQL has no longer timeouts than 596h31m23.647s") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
