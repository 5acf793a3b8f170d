//go:build unix

package pgtest_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
)

// TestDatabasesShareAServer: each test has a database of its own, which ends with the test and the
// sessions that it left.
func TestDatabasesShareAServer(t *testing.T) {
	t.Parallel()
	a := pgtest.Database(t)
	a.Exec(t, "CREATE TABLE own (n int)")
	var dsn string
	t.Run("another test", func(t *testing.T) {
		b := pgtest.Database(t)
		dsn = b.DSN()
		if a.Port() != b.Port() {
			t.Errorf("the ports are %d and %d", a.Port(), b.Port())
		}
		b.Exec(t, "CREATE TABLE own (n int)") // there is none
		if _, err := pgx.Connect(t.Context(), dsn); err != nil {
			t.Error(err)
		}
	})
	if conn, err := pgx.Connect(t.Context(), dsn); err == nil {
		_ = conn.Close(t.Context())
		t.Error("the database outlived its test")
	}
}

// TestSharedServerIsNotHarmed: what would disturb other tests is refused.
func TestSharedServerIsNotHarmed(t *testing.T) {
	t.Parallel()
	p := pgtest.Database(t)
	for what, do := range map[string]func(hosttest.TB){
		"Stop": p.Stop, "Restart": p.Restart, "Crash": p.Crash, "Kill": p.Kill, "Freeze": p.Freeze, "Thaw": p.Thaw,
		"FreezeBackend": func(t hosttest.TB) { p.FreezeBackend(t, 0) },
		"Standby":       func(t hosttest.TB) { p.Standby(t) },
		"Reject":        func(t hosttest.TB) { p.Reject(t, "app") },
	} {
		err := hosttest.On(what, func(h *hosttest.Host) { do(h) })
		if err == nil || !strings.Contains(err.Error(), "other tests share this server") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if p.Query(t, "SELECT 1") != "1" {
		t.Error("the server does not answer")
	}
}
