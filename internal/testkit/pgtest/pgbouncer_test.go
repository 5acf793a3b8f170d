//go:build unix

package pgtest_test

import (
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
