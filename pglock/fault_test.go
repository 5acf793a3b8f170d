//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/pglock"
)

// short is a configuration whose quarantine a test can wait for.
var short = &pglock.Config{MaxTTL: 5 * time.Second}

// shortRequest is for what ends with its lease.
func shortRequest(name string) driver.Request {
	req := request(name)
	req.TTL = short.MaxTTL
	return req
}

// watched makes a request tell of its loss.
func watched(req driver.Request) (driver.Request, <-chan error) {
	lost := make(chan error, 1)
	req.OnLost = func(cause error) { lost <- cause }
	return req, lost
}

func TestTerminatedBackendIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	req, lost := watched(shortRequest("a"))
	l := try(t, e, req)
	stop := beat(t, e, l)
	waiter := queueUp(t, t.Context(), other, request("a"))
	backend := holder(t, pg, "a")
	stop()
	end := time.Now().Add(l.TTL)
	begun := time.Now()
	pg.Terminate(t, backend)
	cause := await(t, lost, "the loss")
	t.Logf("told %v after the start of psql's termination: %v", time.Since(begun), cause)
	if !errors.Is(cause, driver.ErrLost) || !strings.Contains(cause.Error(), "terminating connection") {
		t.Errorf("cause: %v", cause)
	}
	if err := renew(e, l); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("renewing a lost lock: %v", err)
	}
	if err := e.Release(t.Context(), l); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("releasing a lost lock: %v", err)
	}
	g := granted(t, waiter)
	if early := time.Until(end); early > l.TTL/2 {
		t.Errorf("the next holder got in %v before the lost lease was over", early)
	}
	if g.Token <= l.Token {
		t.Errorf("token %d after %d", g.Token, l.Token)
	}
	release(t, other, g)
	release(t, e, try(t, e, request("a")))
}

func TestTerminatedWaiterQueuesAgain(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	req := request("a")
	l := try(t, e, req)
	stop := beat(t, e, l)
	waiter := queueUp(t, t.Context(), other, req)
	for range 3 {
		pg.Exec(t, "SELECT pg_terminate_backend(pid) FROM "+activityHere+" WHERE wait_event = 'advisory'")
		eventually(t, "the waiter is back in the server", func() bool { return backends(t, pg, "wait_event = 'advisory'") == "1" })
	}
	stop()
	release(t, e, l)
	release(t, other, granted(t, waiter))
}

// TestRestart: after a restart, and after a crash, holders know that they lost
// their locks, waiters go on waiting, and nobody is granted anything while an
// unreachable holder may still believe in its lock.
func TestRestart(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: the server restarts, orderly or not", verdict.Safe)
	for name, restart := range map[string]func(*pgtest.Postgres, hosttest.TB){
		"restart": (*pgtest.Postgres).Restart, "crash": (*pgtest.Postgres).Crash,
		"kill": func(p *pgtest.Postgres, t hosttest.TB) { p.Kill(t); p.Restart(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pg := pgtest.StartPostgres(t)
			e, other := engine(t, pg.DSN(), short), engine(t, pg.DSN(), short)
			req, lost := watched(shortRequest("a"))
			l := try(t, e, req)
			waiter := queueUp(t, t.Context(), other, shortRequest("a"))
			begun := time.Now()
			restart(pg, t)
			await(t, lost, "the loss")
			if b, err := e.Acquire(t.Context(), shortRequest("b")); err == nil && time.Since(begun) < short.MaxTTL ||
				err != nil && (!errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "until")) {
				t.Errorf("a try in the quarantine, %v after it began: %+v, %v", time.Since(begun), b, err)
			}
			g := granted(t, waiter)
			if early := short.MaxTTL - time.Since(begun); early > 0 {
				t.Errorf("the waiter got in %v before the quarantine was over", early)
			}
			if g.Token <= l.Token {
				t.Errorf("token %d after %d", g.Token, l.Token)
			}
			letGo(t, other, g)
			regained(t, e, shortRequest("c")) // the quarantine is over for the other engine too
		})
	}
}

// TestCrashedBackend: the death of any process of the server makes it drop all
// sessions and forget their locks, without a restart that could be seen.
func TestCrashedBackend(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), short)
	req, lost := watched(shortRequest("a"))
	stop := beat(t, e, try(t, e, req))
	victim, err := os.FindProcess(int(holder(t, pg, "a")))
	stop()
	begun := time.Now()
	if err != nil || victim.Pid <= 1 || victim.Kill() != nil {
		t.Fatal("the server's process cannot be killed")
	}
	await(t, lost, "the loss")
	req.Wait = true
	g, err := e.Acquire(t.Context(), req)
	if err != nil || time.Since(begun) < short.MaxTTL {
		t.Errorf("granted %v after the crash: %v", time.Since(begun), err)
	}
	letGo(t, e, leaseOf(req, g))
}

func TestStandbyIsRefusedAndPromotionBeginsAnEpoch(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), short)
	spend(t, e, shortRequest("a"), 1)
	sb := pg.Standby(t)
	sb.CatchUp(t, pg)
	refusing := engine(t, sb.DSN(), short)
	_, err := refusing.Acquire(t.Context(), shortRequest("a"))
	if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "standby") {
		t.Errorf("a lock on a standby: %v", err)
	}
	verdict.Is(t, "PostgreSQL: the server is a standby", verdict.Refused, verdict.OfError(err))
	verdict.Is(t, "PostgreSQL: a standby is promoted and the old primary is off", verdict.Safe)
	sb.Cut(t)
	last := spend(t, e, shortRequest("a"), 200) // the standby never receives these tokens
	pg.Stop(t)
	sb.Promote(t)
	begun := time.Now()
	if l := regained(t, engine(t, sb.DSN(), short), shortRequest("a")); l.Token <= last.Token {
		t.Errorf("the promoted standby gave token %d after %d", l.Token, last.Token)
	}
	if time.Since(begun) < short.MaxTTL-time.Second {
		t.Errorf("the promoted standby granted a lock after %v", time.Since(begun))
	}
}

// TestTwoPrimaries: a standby is promoted while the old primary serves its clients.
func TestTwoPrimaries(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, lazyDisk...)
	e := engine(t, pg.DSN(), brief)
	spend(t, e, quick("a"), 1)
	sb := pg.Standby(t)
	sb.CatchUp(t, pg)
	first := regained(t, e, quick("a"))
	stop := beat(t, e, first)
	sb.Promote(t)
	second := regained(t, engine(t, sb.DSN(), brief), quick("a"))
	stop()
	verdict.Is(t, "PostgreSQL: a standby is promoted while the old primary still serves clients",
		verdict.Guarded, verdict.OfHolders(renew(e, first), first.Token, second.Token))
}

func TestRestoredDumpBeginsAnEpoch(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: a dump, an archive or a cold backup is restored", verdict.Safe)
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), short)
	spend(t, e, shortRequest("a"), 1)
	copied := pg.Restored(t)
	last := spend(t, e, shortRequest("a"), 100)
	if l := regained(t, engine(t, copied.DSN(), short), shortRequest("a")); l.Token <= last.Token {
		t.Errorf("the restored cluster gave token %d after %d", l.Token, last.Token)
	}
}

// TestSilentServer: an engine whose server does not answer gives up its locks by
// its own clock, and a request ends with its context.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	req, lost := watched(shortRequest("a"))
	l := try(t, e, req)
	pg.Freeze(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := e.Renew(ctx, []driver.Lease{l})[0]; !errors.Is(err, context.DeadlineExceeded) && len(lost) == 0 {
		t.Errorf("renewing at a silent server: %v", err)
	}
	other := shortRequest("b")
	_, err := e.Acquire(ctx, other)
	verdict.Is(t, "PostgreSQL: the server cannot be reached", verdict.Refused, verdict.OfError(err))
	if err := await(t, lost, "the loss"); !errors.Is(err, driver.ErrLost) {
		t.Error(err)
	}
	pg.Thaw(t)
	letGo(t, e, regained(t, e, other)) // the locks are free
}

func TestCancelledWaitsLeaveOtherLocksAlone(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	req, lost := watched(request("mine"))
	mine := try(t, e, req)
	req.Name = "theirs"
	theirs := try(t, other, req)
	stop, end := beat(t, e, mine), beat(t, other, theirs)
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		w := queueUp(t, ctx, e, request("theirs"))
		if i%2 == 0 {
			time.Sleep(time.Duration(i) * time.Millisecond)
		}
		begun := time.Now()
		cancel()
		if err := await(t, w, "the end of the wait").err; !errors.Is(err, driver.ErrHeld) || !errors.Is(err, context.Canceled) {
			t.Errorf("a wait that was given up: %v", err)
		}
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("giving up took %v", took)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // on the shared session
		_, _ = e.Acquire(ended, request("none"))
	}
	eventually(t, "no waiter is left", func() bool {
		return pg.Query(t, "SELECT (SELECT count(*) FROM fencelock.queued) + (SELECT count(*) FROM "+locksHere+" WHERE NOT granted)") == "0"
	})
	stop()
	end()
	if err := renew(e, mine); err != nil {
		t.Errorf("the other lock: %v", err)
	}
	select {
	case cause := <-lost:
		t.Error(cause)
	default:
	}
	release(t, e, mine)
	release(t, other, theirs)
	release(t, e, try(t, e, request("none")))
}

// TestContextsThatEndAnyTime: acquires whose contexts end at any moment leave
// neither locks nor turns behind.
func TestContextsThatEndAnyTime(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	mine := try(t, e, request("mine"))
	for i := range 300 {
		req := request("a")
		if i%3 == 0 {
			req = shared(req, i%2*3)
		}
		req.Wait = i%2 == 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Microsecond)
		g, err := e.Acquire(ctx, req)
		cancel()
		if err == nil {
			letGo(t, e, leaseOf(req, g)) // one that ended a wait is short
		}
		if err := renew(e, mine); err != nil {
			t.Fatal(err)
		}
	}
	req := request("a")
	req.Wait = true
	g, err := e.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	release(t, e, leaseOf(req, g))
	release(t, e, mine)
}

// TestMinimumHoldSurvivesACrash: a minimum hold that is longer than the
// quarantine closes its name after a crash too, and a break does not open it.
func TestMinimumHoldSurvivesACrash(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, lazyDisk...)
	cfg := &pglock.Config{MaxTTL: time.Second}
	e := engine(t, pg.DSN(), cfg)
	req := request("a")
	req.TTL, req.MinHold = time.Second, 8*time.Second
	begun := time.Now()
	letGo(t, e, regained(t, e, req))
	req.MinHold = 0
	if g, err := e.Acquire(t.Context(), req); err == nil && time.Since(begun) < 8*time.Second {
		t.Errorf("granted token %d in a minimum hold", g.Token)
	}
	pg.Kill(t)
	pg.Restart(t)
	eventually(t, "the quarantine is over", func() bool { // and maybe the minimum hold
		g, err := e.Acquire(t.Context(), req)
		if err == nil {
			letGo(t, e, leaseOf(req, g))
		}
		return err == nil || errors.Is(err, driver.ErrHeld)
	})
	req.Wait = true
	g, err := e.Acquire(t.Context(), req)
	if err != nil || time.Since(begun) < 8*time.Second {
		t.Errorf("granted %v after the start of a minimum hold of 8 s: %v", time.Since(begun), err)
	}
	letGo(t, e, leaseOf(req, g))
}

// TestNoServer: a try says soon that there is no server, and a wait for as long as
// it likes, in the words of the connection.
func TestNoServer(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	pg.Stop(t)
	req := request("a")
	for _, req.Wait = range []bool{false, true} {
		limit := 500 * time.Millisecond
		eventually(t, "an error in the words of the connection", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := e.Acquire(ctx, req)
			if !errors.Is(err, driver.ErrUnavailable) {
				t.Fatalf("wait %v: %v", req.Wait, err)
			}
			verdict.Is(t, "PostgreSQL: the server cannot be reached", verdict.Refused, verdict.OfError(err))
			limit *= 2 // on a slow machine no answer came before the context ended
			return strings.Contains(err.Error(), "refused")
		})
	}
}

// TestEarlierTroubleIsTold: when the last attempt is cut short by the context, the
// error says what went wrong before.
func TestEarlierTroubleIsTold(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig("postgres://nobody@127.0.0.1:1/none?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var dials atomic.Int32
	cfg.ConnConfig.DialFunc = func(dialCtx context.Context, _, _ string) (net.Conn, error) {
		if dials.Add(1) <= 2 { // the connection for locks, and the engine's own
			return nil, errors.New("the cable is out")
		}
		cancel()
		<-dialCtx.Done()
		return nil, dialCtx.Err()
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	e := pglock.New(pool, nil)
	defer e.Close()
	req := request("a")
	req.Wait = true
	_, err = e.Acquire(ctx, req)
	if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the cable is out") {
		t.Error(err)
	}
}
