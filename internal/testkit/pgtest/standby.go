//go:build unix

package pgtest

import (
	"strconv"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// Standby starts a hot standby that streams from the server and has its settings.
func (p *Postgres) Standby(t hosttest.TB) *Postgres {
	t.Helper()
	p.mustBeOwn(t)
	s := newPostgres(newHome(t, "standby"), p.settings)
	s.home.Must(t, s.home.Command(pgProgram(t, "pg_basebackup"), "-D", s.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync",
		"-h", "127.0.0.1", "-p", strconv.Itoa(p.port), "-U", "postgres"))
	s.launch(t)
	return s
}

// Promote makes a standby a primary and returns when it is one.
func (p *Postgres) Promote(t hosttest.TB) {
	t.Helper()
	if p.Query(t, "SELECT pg_promote(true, $1)", int(patience.Seconds())) != "true" {
		t.Fatalf("the standby is not promoted: %s", p.home.Log())
	}
}

// CatchUp returns when the standby has applied everything that the primary has written.
func (p *Postgres) CatchUp(t hosttest.TB, primary *Postgres) {
	t.Helper()
	// A last record pushes all before it out.
	primary.Exec(t, "SET synchronous_commit = on", "SELECT pg_logical_emit_message(true, 'catch up', '')")
	lsn := primary.Query(t, "SELECT pg_current_wal_flush_lsn()::text")
	p.eventually(t, "catch up", "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", lsn)
}

// Cut separates a standby from its primary: what the primary writes from now on never reaches it.
func (p *Postgres) Cut(t hosttest.TB) {
	t.Helper()
	p.Exec(t, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
	p.eventually(t, "let go of its primary", "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)")
}

// eventually waits until a query answers true.
func (p *Postgres) eventually(t hosttest.TB, what, sql string, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if p.Query(t, sql, args...) == "true" {
			return
		}
	}
	t.Fatalf("the server does not %s: %s", what, p.home.Log())
}

// Restored starts a server with a new cluster, a system identifier of its own and the same
// settings, and restores a dump of this server's database into it.
func (p *Postgres) Restored(t hosttest.TB) *Postgres {
	t.Helper()
	r := newPostgres(newHome(t, "restored"), p.settings)
	initdb(t, r.home, r.data())
	r.launch(t)
	dump := p.Command(t, "pg_dump")
	restore := r.Command(t, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1")
	out, err := dump.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	restore.Stdin = out
	if err := dump.Start(); err != nil {
		t.Fatal(err)
	}
	r.home.Must(t, restore)
	if err := dump.Wait(); err != nil {
		t.Fatalf("pg_dump: %v", err)
	}
	return r
}

// Follow makes a former primary a standby of the server that took over. The former primary is shut
// down, unless it is down, and started again.
func (p *Postgres) Follow(t hosttest.TB, primary *Postgres) {
	t.Helper()
	if p.runs() {
		p.Stop(t)
	}
	conninfo := "host=127.0.0.1 port=" + strconv.Itoa(primary.port) + " user=postgres"
	p.home.Must(t, p.home.Command("sh", "-c", `echo "primary_conninfo = '$2'" >>"$1"/postgresql.auto.conf && touch "$1"/standby.signal`,
		"sh", p.data(), conninfo))
	p.Restart(t)
}

// Reject ends the sessions of a role and refuses its logins from now on (pg_hba.conf), like an
// administrator who takes a server out of service.
func (p *Postgres) Reject(t hosttest.TB, role string) {
	t.Helper()
	p.mustBeOwn(t)
	p.home.Must(t, p.home.Command("sh", "-c", `cd "$1" && { echo "host all $2 all reject"; cat pg_hba.conf; } >new.conf && mv new.conf pg_hba.conf`,
		"sh", p.data(), role))
	p.Exec(t, "SELECT pg_reload_conf()")
	p.eventually(t, "read its pg_hba.conf", "SELECT EXISTS (SELECT FROM pg_hba_file_rules WHERE auth_method = 'reject') AND pg_conf_load_time() > now() - interval '1 minute'")
	p.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+role+"'")
}
