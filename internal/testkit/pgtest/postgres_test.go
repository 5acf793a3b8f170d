//go:build unix

package pgtest_test

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/internal/testkit/pgtest"
)

func TestPostgres(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t, "max_connections=33")
	if got := p.Query(t, "SHOW max_connections"); got != "33" {
		t.Errorf("max_connections is %s, want 33", got)
	}
	if got := p.Query(t, "SHOW fsync"); got != "off" {
		t.Errorf("fsync is %s, want off", got)
	}
	if got := p.Query(t, "SELECT $1::text || current_user", "I am "); got != "I am postgres" {
		t.Errorf("got %q", got)
	}
	if got := p.Query(t, "SELECT 1 WHERE false"); got != "" {
		t.Errorf("no row is %q", got)
	}
	p.Exec(t, "CREATE ROLE app LOGIN")
	out, err := p.Command(t, "psql", "-X", "-At", "-c", "SELECT current_user", p.As("app")).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "app" {
		t.Errorf("psql says %q, %v", got, err)
	}
	// The host of the URL and the socket in the directory are the same server.
	out, err = p.Command(t, "psql", "-X", "-At", "-h", p.Dir(), "-c", "SHOW port").CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != strconv.Itoa(p.Port()) {
		t.Errorf("the socket leads to port %q, %v, want %d", got, err, p.Port())
	}
}

func TestPostgresSettingsOverride(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t, "fsync=on")
	if got := p.Query(t, "SHOW fsync"); got != "on" {
		t.Errorf("fsync is %s, want on", got)
	}
}

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

func TestPostgresTerminate(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t)
	conn := p.Connect(t)
	p.Terminate(t, conn.PgConn().PID())
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a terminated backend answers")
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

func TestPostgresRestored(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t, "max_connections=33")
	p.Exec(t, "CREATE SCHEMA app", "CREATE TABLE app.kept AS SELECT 7 AS n", "CREATE SEQUENCE app.s", "SELECT nextval('app.s')")
	r := p.Restored(t)
	if got := r.Query(t, "SELECT n FROM app.kept"); got != "7" {
		t.Errorf("the table has %q, want 7", got)
	}
	if got := r.Query(t, "SELECT nextval('app.s')"); got != "2" {
		t.Errorf("the sequence goes on with %s, want 2", got)
	}
	if got := r.Query(t, "SHOW max_connections"); got != "33" {
		t.Errorf("max_connections is %s, want 33", got)
	}
	const id = "SELECT system_identifier::text FROM pg_control_system()"
	if p.Query(t, id) == r.Query(t, id) {
		t.Error("a restored cluster has the system identifier of the dumped one")
	}
}

// startedPostgres tells a child of TestPostgresDiesWithTheBinary what it is for.
const startedPostgres = "FENCELOCK_PGTEST_STARTED"

// A test binary that is killed leaves neither servers nor files behind.
func TestPostgresDiesWithTheBinary(t *testing.T) {
	t.Parallel()
	if os.Getenv(startedPostgres) != "" {
		p := pgtest.StartPostgres(t)
		b := pgtest.StartPgBouncer(t, p, "session")
		_, _ = os.Stdout.WriteString("dirs " + p.Dir() + " " + b.Dir() + " " + p.DSN() + "\n")
		p.Freeze(t)
		_, _ = os.Stdout.WriteString("frozen\n")
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPostgresDiesWithTheBinary$")
	cmd.Env = append(os.Environ(), startedPostgres+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for buf := make([]byte, 512); !strings.Contains(said.String(), "frozen"); {
		n, err := out.Read(buf)
		said.Write(buf[:n])
		if err != nil {
			t.Fatalf("the child said %q: %v", said.String(), err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	_, line, _ := strings.Cut(said.String(), "dirs ")
	fields := strings.Fields(line)
	for _, dir := range fields[:2] {
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
	if conn, err := pgx.Connect(t.Context(), fields[2]); err == nil {
		_ = conn.Close(t.Context())
		t.Error("the server outlived the test binary")
	}
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
