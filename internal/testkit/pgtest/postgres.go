//go:build unix

// Package pgtest starts PostgreSQL servers for tests: single ones, with standbys, and behind
// PgBouncer.
package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// boolOID is the type boolean, whose values Query returns as Go writes them.
const boolOID = 16

const patience = hosttest.Patience

// Postgres is a PostgreSQL server for one test: a cluster of its own, on a free port of the
// loopback interface, with trust authentication. It ends with the test or the test binary. Its
// methods are not safe for concurrent use, except DSN, As, Port and Command. One that Database
// returns is a database of a server that tests share.
type Postgres struct {
	home     hosttest.Home
	database string
	shared   bool // other tests use the server, so nothing may stop, freeze or configure it
	port     int
	settings []string
	env      []string // of the server, beside the home's
	cmd      *exec.Cmd
	gone     chan struct{}       // closed when the postmaster has ended
	admin    chan *pgconn.PgConn // one connection for Exec and Query, while none of them has it
}

// StartPostgres starts a server with settings such as "max_connections=200". Its data survive a
// crash of the server, but not one of the host, unless fsync=on is set. All servers of a test
// binary have the same system identifier, because they are copies of one template; use Restored for
// another one. It has one database and no others can be created; for these use StartCluster.
func StartPostgres(t hosttest.TB, settings ...string) *Postgres {
	t.Helper()
	return StartPostgresBy(t, nil, settings...)
}

// StartPostgresBy is StartPostgres for a server that uses a clock, also after restarts.
func StartPostgresBy(t hosttest.TB, c *hosttest.Clock, settings ...string) *Postgres {
	t.Helper()
	return startCopy(t, bare, c, settings)
}

// StartCluster is StartPostgres for tests that create databases.
func StartCluster(t hosttest.TB, settings ...string) *Postgres {
	t.Helper()
	return startCopy(t, whole, nil, settings)
}

func startCopy(t hosttest.TB, which string, c *hosttest.Clock, settings []string) *Postgres {
	t.Helper()
	p := newPostgres(newHome(t, "pg"), settings)
	p.env = c.Env()
	copyTemplate(t, which, p.home, p.data())
	p.launch(t)
	return p
}

func newPostgres(home hosttest.Home, settings []string) *Postgres {
	return &Postgres{home: home, database: "postgres", settings: settings, admin: make(chan *pgconn.PgConn, 1)}
}

// launch starts a new server on its data, on a free port, for the first time.
func (p *Postgres) launch(t hosttest.TB) {
	t.Helper()
	t.Cleanup(func() { p.discard(t) })
	p.onFreePort(t)
}

func (p *Postgres) onFreePort(t hosttest.TB) {
	t.Helper()
	p.home.Launch(t, func(port int) error {
		p.port = port
		return p.start(t)
	})
}

// start runs the postmaster and waits until it lets clients in.
func (p *Postgres) start(t hosttest.TB) error {
	t.Helper()
	args := []string{"-D", p.data()}
	for _, s := range append([]string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(p.port), "unix_socket_directories=" + p.home.Dir,
		"fsync=off", "shared_buffers=32MB", "dynamic_shared_memory_type=mmap",
		"wal_retrieve_retry_interval=100ms",
		"autovacuum=off", "max_logical_replication_workers=0", // each is a process of every server
	}, p.settings...) {
		args = append(args, "-c", s)
	}
	p.cmd = p.home.Command(pgProgram(t, "postgres"), args...)
	p.cmd.Env = append(p.cmd.Env, p.env...)
	p.gone = p.home.Run(t, p.cmd)
	return p.home.Await(t, p.gone, func() bool {
		if !p.saysReady() {
			return false
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		conn, err := pgconn.Connect(ctx, p.DSN())
		if err == nil {
			p.keep(ctx, conn)
		}
		return err == nil
	})
}

// saysReady reports whether the postmaster has written to its file that it lets clients in. To ask
// it by connecting costs it a process each time.
func (p *Postgres) saysReady() bool {
	b, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	lines := strings.Split(string(b), "\n")
	if err != nil || len(lines) < 8 || lines[0] != strconv.Itoa(p.PID()) {
		return false
	}
	state := strings.TrimSpace(lines[7])
	return state == "ready" || state == "standby"
}

// DSN returns the URL of the database for the superuser postgres.
func (p *Postgres) DSN() string { return p.As("postgres") }

// As returns the URL of the database for another role.
func (p *Postgres) As(role string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", role, p.port, p.database)
}

// Port returns the TCP port on 127.0.0.1. It stays the same after a restart.
func (p *Postgres) Port() int { return p.port }

// PID returns the process id of the postmaster.
func (p *Postgres) PID() int { return p.cmd.Process.Pid }

// Command prepares a PostgreSQL client program, such as psql, with an environment in which it finds
// this server.
func (p *Postgres) Command(t hosttest.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(pgProgram(t, name), args...)
	cmd.Env = append(os.Environ(), "PGHOST=127.0.0.1", "PGPORT="+strconv.Itoa(p.port),
		"PGUSER=postgres", "PGDATABASE="+p.database, "PGSSLMODE=disable")
	return cmd
}

// Connect opens a connection, which is closed at the end of the test.
func (p *Postgres) Connect(t hosttest.TB) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // the server may be gone or frozen, as the test liked
	})
	return conn
}

// Exec runs statements in one session.
func (p *Postgres) Exec(t hosttest.TB, statements ...string) {
	t.Helper()
	p.once(t, func(ctx context.Context, conn *pgconn.PgConn) error {
		for _, sql := range statements {
			if err := conn.Exec(ctx, sql).Close(); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
}

// Query returns the first column of the first row as text: "" if it is NULL or there is no row.
func (p *Postgres) Query(t hosttest.TB, sql string, args ...any) string {
	t.Helper()
	var params [][]byte
	for _, arg := range args {
		params = append(params, fmt.Append(nil, arg))
	}
	var text string
	p.once(t, func(ctx context.Context, conn *pgconn.PgConn) error {
		rows := conn.ExecParams(ctx, sql, params, nil, nil, nil)
		if rows.NextRow() { // the first row is all of interest: Close reads over the others
			text = string(rows.Values()[0])
			if rows.FieldDescriptions()[0].DataTypeOID == boolOID {
				text = map[string]string{"t": "true", "f": "false"}[text]
			}
		}
		_, err := rows.Close()
		return err
	})
	return text
}

// once lends do a connection.
func (p *Postgres) once(t hosttest.TB, do func(context.Context, *pgconn.PgConn) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := p.borrow(ctx)
	if err == nil {
		err = do(ctx, conn)
		p.keep(ctx, conn)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// borrow returns the connection that was kept, or opens one if it is lent or has ended with
// the server: a process of the server costs as much as a hundred statements.
func (p *Postgres) borrow(ctx context.Context) (*pgconn.PgConn, error) {
	select {
	case conn := <-p.admin:
		if conn.Ping(ctx) == nil {
			return conn, nil
		}
	default:
	}
	return pgconn.Connect(ctx, p.DSN())
}

// keep keeps a connection for borrow, or closes it. What its session had is gone in any case.
func (p *Postgres) keep(ctx context.Context, conn *pgconn.PgConn) {
	if conn.Exec(ctx, "DISCARD ALL").Close() == nil {
		select {
		case p.admin <- conn:
			return
		default:
		}
	}
	_ = conn.Close(ctx) // it may have ended with the server
}

// Dir returns the server's directory, which also contains its Unix socket.
func (p *Postgres) Dir() string { return p.home.Dir }

func (p *Postgres) data() string { return filepath.Join(p.home.Dir, "data") }

// pgProgram finds a program of the newest installed PostgreSQL.
func pgProgram(t hosttest.TB, name string) string {
	t.Helper()
	found, newest := "", 0
	paths, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name) // the pattern is fine
	for _, path := range paths {
		major, _ := strconv.Atoi(strings.Split(path, "/")[4])
		if major > newest {
			found, newest = path, major
		}
	}
	if newest >= 14 {
		return found
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s of PostgreSQL 14 or newer is missing; on Debian: apt-get install postgresql, elsewhere put its bin folder into PATH", name)
	}
	return path
}
