//go:build unix

package pgtest_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/internal/testkit/pgtest"
)

// Two clients share a server connection by transactions, and do not by sessions.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t)
	for mode, want := range map[string]bool{"transaction": true, "session": false} {
		b := pgtest.StartPgBouncer(t, p, mode)
		backends := map[string]bool{}
		for range 2 {
			conn, err := pgx.Connect(t.Context(), b.DSN())
			if err != nil {
				t.Fatalf("%s: %v", mode, err)
			}
			defer func() { _ = conn.Close(t.Context()) }()
			var pid string
			if err := conn.QueryRow(t.Context(), "SELECT pg_backend_pid()::text", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
				t.Fatalf("%s: %v", mode, err)
			}
			backends[pid] = true
		}
		if shared := len(backends) == 1; shared != want {
			t.Errorf("%s pooling: the clients share a backend: %v, want %v", mode, shared, want)
		}
		b.Stop(t)
		if _, err := pgx.Connect(t.Context(), b.DSN()); err == nil {
			t.Errorf("%s pooling: a stopped pooler lets clients in", mode)
		}
	}
}

func TestPgBouncerSettings(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t)
	b := pgtest.StartPgBouncer(t, p, "session", "default_pool_size=7")
	if b.Port() == p.Port() || b.PID() <= 1 {
		t.Errorf("port %d, pid %d", b.Port(), b.PID())
	}
	out, err := p.Command(t, "psql", "-X", "-At", "-c", "SHOW CONFIG", "-h", "127.0.0.1",
		"-p", portText(b), "-d", "pgbouncer").CombinedOutput()
	if err != nil || !contains(out, "default_pool_size|7|") {
		t.Errorf("%v\n%s", err, out)
	}
}

func portText(b *pgtest.PgBouncer) string { return strconv.Itoa(b.Port()) }

func contains(out []byte, text string) bool { return strings.Contains(string(out), text) }
