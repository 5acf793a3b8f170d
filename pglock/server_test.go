//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/pglock"
)

func TestHashIsTheServers(t *testing.T) {
	t.Parallel()
	conn := pgtest.Database(t).Connect(t)
	rapid.Check(t, func(r *rapid.T) {
		name := rapid.StringN(1, 60, 512).Filter(func(s string) bool { return driver.CheckName(s) == nil }).Draw(r, "name")
		var want int64
		if err := conn.QueryRow(t.Context(), "SELECT hashtextextended($1, 0)", name).Scan(&want); err != nil {
			r.Fatal(err)
		}
		if got := pglock.HashText(name); got != want {
			r.Errorf("%q: %d, the server says %d", name, got, want)
		}
	})
}

// TestForeignSessions: any client that takes the advisory lock of a name's hash,
// or of an integer, meets the same lock.
func TestForeignSessions(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: another program uses pg_advisory_lock on the same key", verdict.Safe)
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	psql := pg.Connect(t)
	says := func(sql string) bool {
		var ok bool
		if err := psql.QueryRow(t.Context(), sql).Scan(&ok); err != nil {
			t.Fatal(err)
		}
		return ok
	}
	for name, key := range map[string]string{"job": "hashtextextended('job', 0)", pglock.Key(42): "42", pglock.Key(-1): "-1"} {
		l := try(t, e, request(name))
		if says("SELECT pg_try_advisory_lock(" + key + ")") {
			t.Errorf("psql took the lock of %q, which is held", name)
		}
		release(t, e, l)
		if !says("SELECT pg_try_advisory_lock(" + key + ")") {
			t.Errorf("psql cannot take the free lock of %q", name)
		}
		eventually(t, "no trace of who let go", func() bool {
			return pg.Query(t, "SELECT count(*) FROM fencelock.held WHERE owner IS NOT NULL") == "0"
		})
		held := refused(t, e, request(name))
		if held.PID != int(psql.PgConn().PID()) || held.Note == "" {
			t.Errorf("%q is held by %+v, want pid %d", name, held, psql.PgConn().PID())
		}
		s, err := e.List(t.Context(), driver.Query{Prefix: name, Exact: true})
		if err != nil || len(s) != 1 || len(s[0].Holders) != 1 || !s[0].Holders[0].Foreign || s[0].Holders[0].PID != held.PID {
			t.Errorf("List: %+v, %v", s, err)
		}
		w := queueUp(t, t.Context(), e, request(name))
		says("SELECT pg_advisory_unlock(" + key + ")")
		release(t, e, granted(t, w))
	}
}

func TestPooler(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	allow := &pglock.Config{AllowPooler: true}
	session := pgtest.StartPgBouncer(t, pg, "session").DSN()
	_, err := engine(t, session, nil).Acquire(t.Context(), request("a"))
	if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "pooler") {
		t.Errorf("a pooler nobody allowed: %v", err)
	}
	verdict.Is(t, "PostgreSQL: a pooler is in between", verdict.Refused, verdict.OfError(err))
	e, direct := engine(t, session, allow), engine(t, pg.DSN(), nil)
	req := request("a")
	req.TTL = 5 * time.Second
	l := try(t, e, req)
	for range 6 {
		time.Sleep(req.TTL / 4)
		if err := renew(e, l); err != nil {
			t.Fatal(err)
		}
	}
	w := queueUp(t, t.Context(), direct, req)
	release(t, e, l)
	l = granted(t, w)
	w = queueUp(t, t.Context(), e, req)
	release(t, direct, l)
	release(t, e, granted(t, w))

	transaction := engine(t, pgtest.StartPgBouncer(t, pg, "transaction").DSN(), allow)
	_, err = transaction.Acquire(t.Context(), req)
	if err == nil {
		_, err = transaction.List(t.Context(), driver.Query{}) // on a connection of its own
	}
	if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "session pooling") {
		t.Errorf("a pooler in transaction mode: %v", err)
	}
}

func TestUnprivilegedRole(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, "CREATE ROLE app LOGIN", "CREATE ROLE other LOGIN")
	e := engine(t, pg.As("app"), nil)
	_, err := e.Acquire(t.Context(), request("a"))
	if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "fencelock init") || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("without a schema: %v", err)
	}
	verdict.Is(t, "PostgreSQL: a privilege is missing", verdict.Refused, verdict.OfError(err))
	if err := e.Init(t.Context()); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("Init of a role that may not: %v", err)
	}
	psql := pg.Command(t, "psql", "-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", "-d", "postgres")
	psql.Stdin = strings.NewReader(pglock.Schema())
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l := try(t, e, request("a"))
	refused(t, engine(t, pg.As("other"), nil), request("a"))
	try(t, e, shared(request("b"), 2))
	if err := engine(t, pg.DSN(), nil).Init(t.Context()); err != nil {
		t.Errorf("Init once more: %v", err)
	}
	release(t, e, l)
	if held := refused(t, e, request("b")); held.PID != 7 {
		t.Errorf("held by %+v", held)
	}
}

func TestFirstUseByMany(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	errs := make(chan error)
	for range 8 {
		e := engine(t, pg.DSN(), nil)
		go func() { // ends with the grant
			req := shared(request("a"), 0)
			_, err := e.Acquire(t.Context(), req)
			errs <- err
		}()
	}
	for range 8 {
		if err := await(t, errs, "a first use"); err != nil {
			t.Error(err)
		}
	}
}

func TestMaxTTL(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), short)
	req := request("a")
	req.TTL = short.MaxTTL + 1
	if _, err := e.Acquire(t.Context(), req); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a TTL beyond MaxTTL: %v", err)
	}
	try(t, e, shortRequest("a"))
	try(t, engine(t, pg.DSN(), nil), request("b"))
	try(t, engine(t, pg.DSN(), short), shortRequest("c"))
	if got := pg.Query(t, "SELECT max_ttl FROM fencelock.epoch"); got != "30000" {
		t.Errorf("the deployment's MaxTTL is %s ms", got)
	}
}

// TestAnyMaxTTLKeepsTheQuarantine: the largest MaxTTL that any role names lengthens the wait after
// a restart, and never ends it.
func TestAnyMaxTTLKeepsTheQuarantine(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	if err := engine(t, pg.DSN(), short).Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, "CREATE ROLE other LOGIN", "SET ROLE other", "SELECT fencelock.register(9223372036854775807, 0)")
	pg.Crash(t)
	if _, err := engine(t, pg.DSN(), short).Acquire(t.Context(), shortRequest("a")); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("after a restart: %v", err)
	}
}

func TestBreakFrozenHolder(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	p := proc.Start(t, "default", pg.DSN())
	req := request("a")
	l := try(t, p, req)
	p.Freeze(t)
	e := engine(t, pg.DSN(), &pglock.Config{BreakWait: 100 * time.Millisecond})
	token, err := e.Break(t.Context(), "a", "it hangs")
	if token <= l.Token || !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "pg_terminate_backend") {
		t.Errorf("breaking a frozen holder: %d, %v", token, err)
	}
	waiter := queueUp(t, t.Context(), e, req)
	force := engine(t, pg.DSN(), &pglock.Config{BreakWait: 100 * time.Millisecond, ForceBreak: true})
	begun := time.Now()
	second, err := force.Break(t.Context(), "a", "it hangs")
	if second <= token || err != nil {
		t.Errorf("breaking by force: %d after %d, %v", second, token, err)
	}
	g := granted(t, waiter)
	if g.Token <= second || time.Since(begun) > req.TTL*2/3 {
		t.Errorf("token %d after %d, in %v", g.Token, second, time.Since(begun))
	}
	p.Thaw(t)
	if err := renew(p, l); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("the broken holder: %v", err)
	}
	release(t, e, g)
}

func TestBreakTellsWhy(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	req, lost := watched(request("a"))
	l := try(t, e, req)
	begun := time.Now()
	token, err := engine(t, pg.DSN(), nil).Break(t.Context(), "a", "the 3 o'clock deploy")
	if err != nil || token <= l.Token {
		t.Fatalf("break: %d, %v", token, err)
	}
	if cause := await(t, lost, "the loss"); !strings.Contains(cause.Error(), "the 3 o'clock deploy") {
		t.Error(cause)
	}
	t.Logf("broken in %v", time.Since(begun))
}

func TestClose(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	req, lost := watched(shortRequest("a"))
	try(t, e, req)
	w := queueUp(t, t.Context(), other, request("a"))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, lost, "the loss")
	release(t, other, granted(t, w))
	if _, err := e.Acquire(t.Context(), request("a")); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, "fsync=on")
	sb := pg.Standby(t)
	bouncer := pgtest.StartPgBouncer(t, pg, "session")
	for _, c := range []struct{ name, dsn, broken, says string }{
		{"a good server", pg.DSN(), "", ""},
		{"a standby", sb.DSN(), "probe lock", "hot standby"},
		{"a pooler", bouncer.DSN(), "pooler", "pooler"},
	} {
		all, err := engine(t, c.dsn, nil).Inspect(t.Context(), 30*time.Second)
		if err != nil || len(all) < 5 {
			t.Errorf("%s: %+v, %v", c.name, all, err)
		}
		found := c.broken == ""
		for _, f := range all {
			found = found || f.Check == c.broken && f.Severity == driver.Broken && strings.Contains(f.Observed, c.says)
			if c.broken == "" && f.Severity != driver.Good || f.Severity != driver.Good && f.Fix == "" {
				t.Errorf("%s: %+v", c.name, f)
			}
		}
		if !found {
			t.Errorf("%s: %+v", c.name, all)
		}
	}
}

func TestNamesOnSameSession(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	for _, name := range []string{"a", "c", "b"} {
		try(t, e, request(name))
	}
	eventually(t, "the holders are written down", func() bool {
		names, err := e.NamesOnSameSession(t.Context(), "a")
		return err == nil && slices.Equal(names, []string{"b", "c"})
	})
}

// TestCloseTellsHoldersFirst: nobody gets in before the holder has been told.
func TestCloseTellsHoldersFirst(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	for _, req := range []driver.Request{request("a"), shared(request("b"), 0)} {
		next, got := request(req.Name), make(chan error, 1)
		req.OnLost = func(error) {
			_, err := other.Acquire(context.Background(), next)
			got <- err
		}
		try(t, e, req)
		refused(t, other, next)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if err := await(t, got, "the loss"); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("somebody asked for %q while its holder was being told: %v, want ErrHeld", req.Name, err)
		}
		e = engine(t, pg.DSN(), nil)
	}
}

// TestBreakOwnerLeavesTheSuccessorAlone: the holder that is to be broken leaves by itself, just
// then, and another one comes. That one keeps its minimum hold, and its token is the greater one.
func TestBreakOwnerLeavesTheSuccessorAlone(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	proxy, dsn := throughProxy(t, pg)
	e, breaks := engine(t, pg.DSN(), nil), engine(t, dsn, nil)
	for _, step := range []string{"WHERE key = $1::bigint AND not_before > clock_timestamp()", "LEFT JOIN (SELECT l.objid"} {
		first := request("a")
		first.Wait = true // the connection of the broken hold may not have answered yet
		l := try(t, e, first)
		if _, err := breaks.List(t.Context(), driver.Query{}); err != nil { // its connection is there
			t.Fatal(err)
		}
		var once sync.Once
		var next driver.Grant
		remove := proxy.OnRequest(step, func() {
			once.Do(func() {
				release(t, e, l)
				req := request("a")
				req.MinHold = time.Hour
				var err error
				if next, err = e.Acquire(context.Background(), req); err != nil {
					t.Error(err)
				}
			})
		})
		token, err := breaks.BreakOwner(t.Context(), "a", l.Owner, "a test")
		remove()
		if next.Token == 0 || err != nil && !errors.Is(err, driver.ErrNotHeld) || token >= next.Token {
			t.Errorf("%s: token %d, %v; the successor has %d", step, token, err, next.Token)
		}
		if got := pg.Query(t, "SELECT count(*) FROM fencelock.minimum"); got != "1" {
			t.Errorf("%s: the successor has %s minimum holds", step, got)
		}
		if err := renew(e, driver.Lease{Name: "a", Owner: next.Owner, Token: next.Token}); err != nil {
			t.Errorf("%s: the successor: %v", step, err)
		}
		if _, err := e.Break(t.Context(), "a", "the end of a test"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOtherEncodings: a database that cannot store all names is refused, and nobody tries again.
func TestOtherEncodings(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartCluster(t)
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		pg.Exec(t, "CREATE DATABASE other TEMPLATE template0 ENCODING '"+encoding+"' LOCALE 'C'")
		e := engine(t, strings.Replace(pg.DSN(), "/postgres?", "/other?", 1), nil)
		if _, err := e.Acquire(t.Context(), request("a")); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "UTF8") {
			t.Errorf("a database in %s: %v, want ErrConfig", encoding, err)
		}
		must(t, e.Close())
		pg.Exec(t, "DROP DATABASE other WITH (FORCE)")
	}
}

// TestBreakOfAHolderWhoseProcessGoesOn: another request of the holder's process has the name right
// after a break, on the same connection. It is no holder who has not let go, and loses nothing.
func TestBreakOfAHolderWhoseProcessGoesOn(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e, breaks := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), &pglock.Config{ForceBreak: true})
	keeps, keepsLost := watched(request("keeps the session"))
	l := try(t, e, keeps)
	for _, req := range []driver.Request{request("a"), shared(request("b"), 0)} {
		next := make(chan wait, 1)
		first := req
		first.OnLost = func(error) {
			go func() { // ends with the grant
				again := req
				again.Wait = true
				g, err := e.Acquire(context.Background(), again)
				next <- wait{e, leaseOf(again, g), err}
			}()
		}
		broken := try(t, e, first)
		token, err := breaks.Break(t.Context(), req.Name, "a test")
		w := await(t, next, "the next one")
		verdict.Is(t, "PostgreSQL: break while the holder works", verdict.Guarded, verdict.OfHolders(nil, broken.Token, w.lease.Token))
		if err != nil || w.err != nil || w.lease.Token <= token {
			t.Errorf("%q: token %d, %v; the next one has %d, %v", req.Name, token, err, w.lease.Token, w.err)
		}
		release(t, e, w.lease)
	}
	if err := renew(e, l); err != nil || len(keepsLost) > 0 {
		t.Errorf("the other lock of the process: %v", err)
	}
	release(t, e, l)
}
