//go:build unix

package pgtest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
)

func TestPostgresRestart(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t)
	dsn := p.DSN()
	p.Exec(t, "CREATE TABLE kept (n int)", "CREATE UNLOGGED TABLE passing (n int)",
		"INSERT INTO kept VALUES (1)", "INSERT INTO passing VALUES (1)", "CHECKPOINT")
	rows := func() string {
		return p.Query(t, "SELECT (SELECT count(*) FROM kept) || ' ' || (SELECT count(*) FROM passing)")
	}
	for _, c := range []struct {
		what string
		do   func()
		want string
	}{
		{"a restart", func() { p.Restart(t) }, "1 1"},
		{"a stop and a restart", func() { p.Stop(t); p.Restart(t) }, "1 1"},
		{"a crash", func() { p.Crash(t) }, "1 0"},
		{"a kill", func() { p.Exec(t, "INSERT INTO passing VALUES (2)"); p.Kill(t); p.Kill(t); p.Restart(t) }, "1 0"},
	} {
		before := p.PID()
		c.do()
		if got := rows(); got != c.want {
			t.Errorf("after %s the tables have %s rows, want %s", c.what, got, c.want)
		}
		if p.PID() == before || p.DSN() != dsn {
			t.Errorf("after %s the process is %d (was %d), the URL %s (was %s)", c.what, p.PID(), before, p.DSN(), dsn)
		}
	}
}

// A killed server cuts its clients off at once; a frozen one leaves them waiting.
func TestPostgresKillAndFreezeAreSeen(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t)
	conn := p.Connect(t)
	answered := make(chan error, 1)
	p.Freeze(t)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT 1")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a frozen server answered: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	p.Thaw(t)
	if err := <-answered; err != nil {
		t.Fatalf("a thawed server: %v", err)
	}

	start := time.Now()
	p.Kill(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := conn.WaitForNotification(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("a connection to a killed server: %v, %v", err, ctx.Err())
	}
	t.Logf("seen %v after Kill began", time.Since(start))
	if _, err := pgx.Connect(ctx, p.DSN()); err == nil {
		t.Error("a killed server lets clients in")
	}
}

func TestPostgresStandby(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t)
	p.Exec(t, "CREATE SEQUENCE s")
	s := p.Standby(t)
	if got := s.Query(t, "SELECT pg_is_in_recovery()"); got != "true" {
		t.Fatalf("the standby is in recovery: %s", got)
	}
	p.Exec(t, "SELECT nextval('s')", "SELECT pg_switch_wal()")
	s.CatchUp(t, p)
	s.Cut(t)
	// Numbers are logged 32 at a time: the next record is after those.
	p.Exec(t, "SELECT nextval('s') FROM generate_series(1, 100)")
	s.Promote(t)
	if got := s.Query(t, "SELECT pg_is_in_recovery()"); got != "false" {
		t.Errorf("the promoted standby is in recovery: %s", got)
	}
	primary, promoted := p.Query(t, "SELECT nextval('s')"), s.Query(t, "SELECT nextval('s')")
	if primary != "102" || promoted >= "90" {
		t.Errorf("the primary is at %s, the standby that lost the tail at %s", primary, promoted)
	}
	const id = "SELECT system_identifier::text FROM pg_control_system()"
	if p.Query(t, id) != s.Query(t, id) {
		t.Error("a standby has another system identifier than its primary")
	}
}

// A test binary that is killed leaves neither servers nor files nor shared memory behind.
func TestPostgresDiesWithTheBinary(t *testing.T) {
	t.Parallel()
	fields := strings.Fields(hosttest.Orphan(t, func() string {
		p := pgtest.StartPostgres(t)
		b := pgtest.StartPgBouncer(t, p, "session")
		common := pgtest.Database(t)
		said := strings.Join([]string{p.Dir(), b.Dir(), common.Dir(), p.DSN(), common.DSN(), segment(t, p), segment(t, common)}, " ")
		p.Freeze(t)
		return said
	}))
	for _, dir := range fields[:3] {
		for range 600 {
			if _, err := os.Stat(dir); os.IsNotExist(err) {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", dir, err)
		}
	}
	for _, dsn := range fields[3:5] {
		if conn, err := pgx.Connect(t.Context(), dsn); err == nil {
			_ = conn.Close(t.Context())
			t.Error("the server outlived the test binary")
		}
	}
	segments, err := exec.Command("ipcs", "-m").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range fields[5:] {
		if slices.Contains(strings.Fields(string(segments)), id) {
			t.Errorf("the shared memory %s is still there", id)
		}
	}
}

// segment returns the number of a server's shared memory.
func segment(t *testing.T, p *pgtest.Postgres) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(p.Dir(), "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(strings.Split(string(b), "\n")[6])[1]
}

// TestPostgresFreezesOneBackend: the others live.
func TestPostgresFreezesOneBackend(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t)
	still, lively := p.Connect(t), p.Connect(t)
	backend := still.PgConn().PID()
	p.FreezeBackend(t, backend)
	answered := make(chan error, 1)
	go func() {
		_, err := still.Exec(context.Background(), "SELECT 1")
		answered <- err
	}()
	for range 3 {
		if _, err := lively.Exec(t.Context(), "SELECT 1"); err != nil {
			t.Error(err)
		}
	}
	select {
	case err := <-answered:
		t.Fatalf("a frozen backend answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	p.ThawBackend(t, backend)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
