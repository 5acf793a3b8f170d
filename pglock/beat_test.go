//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

// renewing holds a lock in a process of its own, which renews it n times at a third of the TTL. It
// returns when the last renewal was sent, and when it was answered.
func renewing(t testing.TB, p *proc.Process, addr string, req driver.Request, n int) (l driver.Lease, sent, answered time.Time) {
	t.Helper()
	if req.Wait {
		before := engine(t, addr, nil)
		first := try(t, before, request(req.Name))
		w := queueUp(t, t.Context(), p, req)
		time.Sleep(100 * time.Millisecond) // longer than the clock of a request is believed
		release(t, before, first)
		sent = time.Now()
		l = granted(t, w)
		answered = time.Now()
	} else {
		l = try(t, p, req)
	}
	for range n {
		time.Sleep(req.TTL / 3)
		sent = time.Now()
		if err := renew(p, l); err != nil {
			t.Fatal(err)
		}
		answered = time.Now()
	}
	return l, sent, answered
}

// TestTryAfterACrash: the first try of a process that knows nothing is refused, and says until when,
// while the lease of a killed holder runs, and granted as soon as it is over.
func TestTryAfterACrash(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: the holder is killed", verdict.Safe)
	pg := pgtest.Database(t)
	for _, mode := range []string{"exclusive", "shared", "limit", "waited", "fresh"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			triesAfterACrash(t, pg, mode)
		})
	}
}

// TestBreakOwnerAfterTheLease: an owner that was killed holds its lock until its lease is over, and
// not after that.
func TestBreakOwnerAfterTheLease(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	for _, mode := range []string{"exclusive", "shared"} {
		for _, late := range []bool{false, true} {
			p, req := proc.Start(t, "postgres", pg.DSN()), request(fmt.Sprint(mode, late))
			if mode == "shared" {
				req = shared(req, 0)
			}
			if req.TTL = 9 * time.Second; late {
				req.TTL = time.Second
			}
			l := try(t, p, req)
			p.Kill(t)
			eventually(t, "it is not listed any more, or never", func() bool {
				list, err := e.List(t.Context(), driver.Query{Prefix: req.Name, Exact: true})
				return err == nil && (!late || len(list) == 0)
			})
			if _, err := e.BreakOwner(t.Context(), req.Name, l.Owner, "a test"); errors.Is(err, driver.ErrNotHeld) != late || err != nil && !late {
				t.Errorf("%s, after the lease: %v; %v", mode, late, err)
			}
		}
	}
}

func triesAfterACrash(t *testing.T, pg *pgtest.Postgres, mode string) {
	p, renewals := proc.Start(t, "postgres", pg.DSN()), 2
	req, next := request("a"+mode), request("a"+mode)
	switch mode {
	case "shared":
		req = shared(req, 0)
	case "limit":
		req, next = shared(req, 1), shared(next, 1)
	case "waited":
		req.Wait = true
	case "fresh": // after a wait
		req.Wait, renewals = true, 0
	}
	req.TTL, next.TTL = 2*time.Second, 2*time.Second
	l, sent, answered := renewing(t, p, pg.DSN(), req, renewals)
	p.Kill(t)
	eventually(t, "its lock is free", func() bool {
		return pg.Query(t, "SELECT pg_try_advisory_xact_lock(hashtextextended('"+req.Name+"', 0))") == "true"
	})
	e, over, asked := engine(t, pg.DSN(), nil), sent.Add(req.TTL), time.Now()
	g, err := e.Acquire(t.Context(), next)
	slack := time.Since(asked) + time.Millisecond // the clocks are compared by the times of its requests
	switch held, isHeld := errors.AsType[*driver.HeldError](err); {
	case isHeld && (held.Until.Before(over.Add(-time.Millisecond)) || held.Until.After(answered.Add(req.TTL+slack))):
		t.Errorf("held until %v, want %v", held.Until, over)
	case err == nil && time.Now().After(over): // on a busy machine
		release(t, e, leaseOf(next, g))
	case !isHeld:
		t.Fatalf("the first try, until %v: token %d, %v; want a *HeldError", over, g.Token, err)
	}
	time.Sleep(time.Until(answered.Add(req.TTL + 2*time.Millisecond)))
	g, err = e.Acquire(t.Context(), next)
	if err != nil || g.Token <= l.Token {
		t.Fatalf("the first try after the lease: token %d, %v", g.Token, err)
	}
	release(t, e, leaseOf(next, g))
}

// TestFrozenHolderCostsOneTTL: who waits gets in a TTL after the last renewal of a holder that is
// frozen, killed or cut off, and not before.
func TestFrozenHolderCostsOneTTL(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: the holder is killed", verdict.Safe)
	verdict.Is(t, "PostgreSQL: the holder is partitioned from the server", verdict.Safe)
	pg := pgtest.StartPostgres(t)
	for _, how := range []string{"frozen", "killed", "cut off"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			proxy, dsn := throughProxy(t, pg)
			p := proc.Start(t, "default", dsn)
			req := request(how)
			req.TTL = 4 * time.Second
			l := try(t, p, req)
			next := engine(t, pg.DSN(), nil)
			w := queueUp(t, t.Context(), next, req)
			time.Sleep(req.TTL / 3)
			sent := time.Now()
			must(t, renew(p, l))
			switch how {
			case "frozen":
				p.Freeze(t)
			case "killed":
				p.Kill(t)
			default:
				for _, link := range proxy.Links() {
					link.Stall(faults.Both)
				}
			}
			n := await(t, w, "the grant")
			took := time.Since(sent)
			t.Logf("granted %v after the last renewal was sent", took)
			if n.err != nil || took < req.TTL || took > req.TTL+req.TTL/4 {
				t.Errorf("granted %v after the last renewal was sent, %v; want %v", took, n.err, req.TTL)
			}
			if how == "frozen" {
				p.Thaw(t)
				if err := renew(p, l); !errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("the frozen holder renews: %v", err)
				}
				verdict.Is(t, "PostgreSQL: the holder freezes", verdict.Guarded, verdict.OfHolders(nil, l.Token, n.lease.Token))
			}
		})
	}
}

// TestListOfRenewedLocks: what is left of a lease is what is left since its last renewal, to a role that may
// see nothing of others.
func TestListOfRenewedLocks(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, "CREATE ROLE other LOGIN")
	p := proc.Start(t, "postgres", pg.DSN())
	req := request("a")
	req.TTL = 2 * time.Second
	_, sent, answered := renewing(t, p, pg.DSN(), req, 5)
	e := engine(t, pg.As("other"), nil)
	held := refused(t, e, req)
	if held.Until.Before(sent.Add(req.TTL-time.Millisecond)) || held.Until.After(answered.Add(req.TTL+time.Millisecond)) {
		t.Errorf("held until %v, want %v", held.Until, sent.Add(req.TTL))
	}
	most := time.Until(answered.Add(req.TTL))
	all, err := e.List(t.Context(), driver.Query{})
	least := time.Until(sent.Add(req.TTL))
	if err != nil || len(all) != 1 || len(all[0].Holders) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	left := all[0].Holders[0].TTL
	t.Logf("left %v of %v, want %v to %v", left, req.TTL, least, most)
	if left < least-time.Millisecond || left > most+time.Millisecond {
		t.Errorf("left of the lease: %v, want %v to %v", left, least, most)
	}
	p.Kill(t)
	time.Sleep(time.Until(answered.Add(req.TTL + 2*time.Millisecond)))
	if all, err := e.List(t.Context(), driver.Query{}); err != nil || len(all) != 0 {
		t.Errorf("after the lease: %+v, %v", all, err)
	}
}

// TestHolderWhoseRenewalsAreUnknown: where no renewal is written down, a vanished holder closes its
// name for a TTL from when somebody finds that.
func TestHolderWhoseRenewalsAreUnknown(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	p := proc.Start(t, "default", pg.DSN())
	req := request("a")
	req.TTL = 2 * time.Second
	try(t, p, req)
	p.Kill(t)
	eventually(t, "its sessions have ended", func() bool { return backends(t, pg, "true") == "0" }) // one may have been sweeping
	pg.Exec(t, "DELETE FROM fencelock.beat", "UPDATE fencelock.held SET seen = NULL")
	time.Sleep(req.TTL + 100*time.Millisecond)
	found := time.Now()
	refused(t, engine(t, pg.DSN(), nil), req)
	if l := regained(t, engine(t, pg.DSN(), nil), req); time.Since(found) < req.TTL {
		t.Errorf("granted token %d %v after it was found", l.Token, time.Since(found))
	}
}

// TestClientsWhoseClocksDiffer: a client whose clock is ahead of the holder's, or behind it, gets in no
// earlier than a TTL after the last renewal, and no later than that and the difference.
func TestClientsWhoseClocksDiffer(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: the holder is killed", verdict.Safe)
	pg := pgtest.StartPostgres(t)
	for _, ahead := range []time.Duration{5 * time.Second, -5 * time.Second} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			p := proc.Start(t, "default", pg.DSN())
			req := request("a" + ahead.String())
			req.TTL = 4 * time.Second
			_, sent, answered := renewing(t, p, pg.DSN(), req, 1)
			p.Kill(t)
			conn, verdict := pg.Connect(t), ""
			for verdict = "held"; verdict[:2] != "ok"; time.Sleep(10 * time.Millisecond) {
				err := conn.QueryRow(t.Context(), "SELECT fencelock.take(hashtextextended($1, 0), 'next', $1, 4000, 0, '', 0, '', 0, $2, '')",
					req.Name, time.Now().Add(ahead).UnixMicro()).Scan(&verdict)
				if err != nil {
					t.Fatal(err)
				}
			}
			late := time.Since(answered) - req.TTL
			t.Logf("granted %v after the last renewal was sent", time.Since(sent))
			if time.Since(sent) < req.TTL || late > max(-ahead, 0)+500*time.Millisecond {
				t.Errorf("granted %v after the last renewal was sent, by a clock %v ahead", time.Since(sent), ahead)
			}
		})
	}
}

// TestRenewalsTakeLittleRoom: thousands of renewals stay in few pages, also while somebody has an old
// snapshot, and none fails.
func TestRenewalsTakeLittleRoom(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), patient)
	req, lost := watched(long("a"))
	l := try(t, e, req)
	tx, err := pg.Connect(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM fencelock.beat")
	must(t, err)
	for i := range 2 {
		for range 2000 {
			must(t, renew(e, l))
		}
		size := number(t, pg, "SELECT pg_total_relation_size('fencelock.beat')")
		t.Logf("%d bytes after %d renewals", size, (i+1)*2000)
		if size > 1<<20 {
			t.Errorf("%d bytes", size)
		}
		if i == 0 {
			must(t, tx.Rollback(t.Context()))
		}
	}
	if len(lost) > 0 {
		t.Error("a loss is told")
	}
	release(t, e, l)
}

// TestRenewalThatDiesBeforeItsCommit: nobody gets in beside a renewal under way, and one that
// was rolled back counts for nobody.
func TestRenewalThatDiesBeforeItsCommit(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e, other := engine(t, pg.DSN(), patient), engine(t, pg.DSN(), patient)
	req, lost := watched(request("a"))
	req.TTL = 8 * time.Second // a quarter of it is the most that a renewal takes
	sent := time.Now()
	l := try(t, e, req)
	answered := time.Now()
	release(t, other, try(t, other, request("b"))) // it is connected
	pg.Exec(t, `CREATE FUNCTION public.gate() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_sleep(3); RETURN NEW; END $$`,
		"CREATE TRIGGER gate AFTER UPDATE ON fencelock.beat FOR EACH ROW EXECUTE FUNCTION public.gate()")
	time.Sleep(req.TTL / 3)
	renewed := make(chan error, 1)
	go func() { renewed <- renew(e, l) }() // ends with the connection
	eventually(t, "the renewal is under way", func() bool { return backends(t, pg, "wait_event = 'PgSleep'") == "1" })
	refused(t, other, req)
	pg.Exec(t, "SELECT pg_terminate_backend(pid) FROM "+activityHere+" WHERE wait_event = 'PgSleep'")
	if err := await(t, renewed, "the end of the renewal"); err == nil {
		t.Error("a renewal that was not committed has been acknowledged")
	}
	await(t, lost, "the loss")
	next := req
	next.OnLost = nil
	if held := refused(t, other, next); held.Until.After(answered.Add(req.TTL + time.Millisecond)) {
		t.Errorf("held until %v, want %v at most", held.Until, answered.Add(req.TTL))
	}
	n := regained(t, other, next)
	took := time.Since(sent)
	t.Logf("granted after %v", took)
	if took < req.TTL || n.Token <= l.Token {
		t.Errorf("granted token %d after %v", n.Token, took)
	}
	release(t, other, n)
}

// TestNobodyKeepsAHolderFromRenewing: another role can lock no row of beat, and change none.
func TestNobodyKeepsAHolderFromRenewing(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, "CREATE ROLE other LOGIN")
	e := engine(t, pg.DSN(), nil)
	l := try(t, e, request("a"))
	before := pg.Query(t, "SELECT string_agg(b::text, ';') FROM fencelock.beat b")
	conn := connect(t, pg.As("other"))
	for _, sql := range []string{"SELECT * FROM fencelock.beat FOR UPDATE", "DELETE FROM fencelock.beat",
		"LOCK TABLE fencelock.beat IN SHARE MODE", "UPDATE fencelock.beat SET at = now()"} {
		if _, err := conn.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s: it may", sql)
		}
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT fencelock.beat(session, 0), fencelock.bury(ARRAY[session]) FROM fencelock.beat"); err != nil {
		t.Fatal(err)
	}
	if got := pg.Query(t, "SELECT string_agg(b::text, ';') FROM fencelock.beat b"); got != before {
		t.Errorf("%s, before %s", got, before)
	}
	if err := renew(e, l); err != nil {
		t.Error(err)
	}
	must(t, tx.Rollback(t.Context()))
	release(t, e, l)
}

func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // the server may be gone
	return conn
}
