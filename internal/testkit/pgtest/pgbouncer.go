//go:build unix

package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// PgBouncer is a connection pooler for one test, in front of a [Postgres]. It ends with the test or
// the test binary.
type PgBouncer struct {
	home     hosttest.Home
	port     int
	database string
	cmd      *exec.Cmd
	gone     chan struct{} // closed when it has ended
}

// StartPgBouncer starts a pooler in front of p with a pool mode: "session", "transaction" or
// "statement". Further settings, such as "default_pool_size=1", are added to its configuration
// unchanged.
func StartPgBouncer(t hosttest.TB, p *Postgres, mode string, settings ...string) *PgBouncer {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			t.Fatal("pgbouncer is missing; on Debian: apt-get install pgbouncer")
		}
	}
	b := &PgBouncer{home: newHome(t, "pgbouncer"), database: p.database}
	t.Cleanup(func() { b.discard(t) })
	b.home.Launch(t, func(port int) error {
		b.port = port
		b.configure(t, p, mode, settings)
		b.cmd = b.home.Command(program, b.file())
		b.gone = b.home.Run(t, b.cmd)
		return b.home.Await(t, b.gone, func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			conn, err := pgconn.Connect(ctx, b.DSN())
			return err == nil && conn.Close(ctx) == nil
		})
	})
	return b
}

// configure writes the configuration. With auth_type any, everybody is the user of
// the [databases] line.
func (b *PgBouncer) configure(t hosttest.TB, p *Postgres, mode string, settings []string) {
	t.Helper()
	lines := append([]string{
		"[databases]", fmt.Sprintf("* = host=127.0.0.1 port=%d user=postgres", p.port),
		"[pgbouncer]", "listen_addr = 127.0.0.1", fmt.Sprintf("listen_port = %d", b.port),
		"unix_socket_dir =", "auth_type = any", "pool_mode = " + mode, "max_client_conn = 1000",
		"pidfile = " + filepath.Join(b.home.Dir, "pgbouncer.pid"),
	}, settings...)
	// Nothing in it is secret, and the pooler runs as somebody else.
	if err := os.WriteFile(b.file(), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Dir returns the directory of PgBouncer.
func (b *PgBouncer) Dir() string { return b.home.Dir }

func (b *PgBouncer) file() string { return filepath.Join(b.home.Dir, "pgbouncer.ini") }

// DSN returns the URL of the database behind the pooler.
func (b *PgBouncer) DSN() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", b.port, b.database)
}

// Stop ends the pooler immediately; its clients' connections are closed.
func (b *PgBouncer) Stop(t hosttest.TB) {
	t.Helper()
	select {
	case <-b.gone:
		return
	default:
	}
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.gone:
	case <-time.After(patience):
		t.Fatalf("pgbouncer does not end: %s", b.home.Log())
	}
}

func (b *PgBouncer) discard(t hosttest.TB) {
	t.Helper()
	if b.cmd != nil {
		b.Stop(t)
	}
	b.home.Remove(t)
}
