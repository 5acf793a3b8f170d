//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// pair is a primary and a standby that streams from it. Clients come as the role app.
type pair struct{ primary, standby *pgtest.Postgres }

func startPair(t *testing.T) pair {
	t.Helper()
	p := pgtest.StartPostgres(t)
	p.Exec(t, "CREATE ROLE app LOGIN", "GRANT CREATE ON DATABASE postgres TO app")
	return pair{p, p.Standby(t)}
}

func (p pair) dsn(parameters string) string {
	return fmt.Sprintf("postgres://app@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable%s", p.primary.Port(), p.standby.Port(), parameters)
}

// failovers are ways in which a standby takes over.
var failovers = map[string]func(t *testing.T, p pair){
	// An administrator puts the primary out of service, and promotes the standby later.
	"the primary rejects clients": func(t *testing.T, p pair) {
		p.primary.Reject(t, "app")
		p.standby.CatchUp(t, p.primary)
		time.Sleep(3 * time.Second)
		p.standby.Promote(t)
	},
	"the primary is killed": func(t *testing.T, p pair) {
		p.primary.Kill(t)
		time.Sleep(time.Second)
		p.standby.Promote(t)
	},
	"the primary becomes a standby": func(t *testing.T, p pair) {
		p.primary.Stop(t)
		p.standby.Promote(t)
		p.primary.Follow(t, p.standby)
	},
}

// TestFailover: whoever waits, leads, or has a job goes on after a failover, without two
// holders at a time, and with greater tokens.
func TestFailover(t *testing.T) {
	t.Parallel()
	slow := os.Getenv("FENCELOCK_SLOW") != ""
	rounds := 1
	if slow {
		rounds = 3
	}
	for name, failover := range failovers {
		for _, parameters := range []string{"", "&target_session_attrs=read-write"} {
			if rejects := name == "the primary rejects clients"; !slow && rejects == (parameters == "") {
				continue // each way once, and each of the parameters
			}
			for round := range rounds {
				t.Run(fmt.Sprint(name, parameters, round), func(t *testing.T) {
					t.Parallel()
					testFailover(t, failover, parameters)
				})
			}
		}
	}
}

func testFailover(t *testing.T, failover func(*testing.T, pair), parameters string) {
	p := startPair(t)
	ctx, stop := context.WithCancel(t.Context())
	f := &fleet{t: t}
	for range 2 {
		e := engine(t, p.dsn(parameters), &pglock.Config{MaxTTL: 2 * time.Second})
		locks := fencelock.New(e, nil).With(fencelock.Options{TTL: 1500 * time.Millisecond})
		f.run(ctx, "lead", func() error { return election.Run(ctx, locks, "lead", f.lead) })
		f.run(ctx, "lock", func() error { return f.acquire(ctx, locks) })
		f.run(ctx, "record", func() error { return f.count(ctx, e.Records()) })
		f.run(ctx, "job", func() error {
			return cron.New(locks, "job", nil).Run(ctx, cron.Every(500*time.Millisecond), func(ctx context.Context) error {
				return f.enter(ctx, "job", 10*time.Millisecond)
			})
		})
	}
	all := []string{"lead", "lock", "record", "job"}
	f.awaitMore(all)
	begun := time.Now()
	failover(t, p)
	took := time.Since(begun)
	f.awaitMore(all)
	t.Logf("everything goes on %v after the failover began, which took %v", time.Since(begun), took)
	stop()
	f.running.Wait()
}

// TestRefusals: before any server has served, a standby and a login that is refused are
// ErrConfig. Afterwards they may be a failover, until it takes too long.
func TestRefusals(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	p.standby.CatchUp(t, p.primary)
	acquire := func(e driver.Engine) error {
		g, err := e.Acquire(t.Context(), request("a"))
		if err == nil {
			err = e.Release(t.Context(), leaseOf(request("a"), g))
		}
		return err
	}
	standby := fmt.Sprintf("postgres://app@127.0.0.1:%d/postgres?sslmode=disable", p.standby.Port())
	if err := acquire(engine(t, standby, nil)); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("a standby alone: %v, want ErrConfig", err)
	}
	hasty, calm := engine(t, p.dsn(""), &pglock.Config{FailoverTime: time.Second}), engine(t, p.dsn(""), nil)
	for _, e := range []driver.Engine{hasty, calm} {
		if err := acquire(e); err != nil {
			t.Fatal(err)
		}
	}
	p.primary.Reject(t, "app")
	if err := acquire(engine(t, p.dsn(""), nil)); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("first contact with a pair that refuses: %v, want ErrConfig", err)
	}
	if err := acquire(calm); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConfig) {
		t.Errorf("a pair that refuses after it has served: %v, want ErrUnavailable", err)
	}
	eventually(t, "the failover takes too long", func() bool { return errors.Is(acquire(hasty), driver.ErrConfig) })
	p.primary.Kill(t)
	for _, e := range []driver.Engine{calm, hasty, engine(t, p.dsn(""), nil)} {
		if err := acquire(e); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConfig) {
			t.Errorf("a standby, and a host that does not answer: %v, want ErrUnavailable", err)
		}
	}
}

// TestPrimaryThatBecomesReadOnly: it is put out of service so, and nobody gets a lock there, by
// a connection of before either. Once it takes writes all goes on.
func TestPrimaryThatBecomesReadOnly(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	release(t, e, try(t, e, request("a")))
	if _, err := e.Records().Swap(t.Context(), "a", nil, "", 0); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
	eventually(t, "the server takes no writes", func() bool { return pg.Query(t, "SHOW transaction_read_only") == "on" })
	eventually(t, "the engine learns of it", func() bool { // each backend reads the settings by itself
		g, err := e.Acquire(t.Context(), request("b"))
		if err == nil {
			return e.Release(t.Context(), leaseOf(request("b"), g)) != nil
		}
		if errors.Is(err, driver.ErrConfig) {
			t.Errorf("a lock of a primary that became read-only: %v", err)
		}
		return errors.Is(err, driver.ErrUnavailable)
	})
	ctx := soon(t, time.Second)
	if _, err := e.Records().Swap(ctx, "b", nil, "", 0); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a record of a primary that became read-only: %v", err)
	}
	pg.Exec(t, "SET default_transaction_read_only = off", "ALTER SYSTEM RESET default_transaction_read_only",
		"SELECT pg_reload_conf()")
	eventually(t, "all goes on", func() bool {
		g, err := e.Acquire(t.Context(), request("c"))
		return err == nil && e.Release(t.Context(), leaseOf(request("c"), g)) == nil
	})
}

// fleet counts what the tasks of a test do, and sees that no two hold a name at a time.
type fleet struct {
	t       *testing.T
	running sync.WaitGroup
	done    [4]atomic.Int64 // by the place of the name in fleetNames

	mu     sync.Mutex // guards all below
	inside map[string]int
	last   map[string]int64 // the greatest token
}

var fleetNames = map[string]int{"lead": 0, "lock": 1, "record": 2, "job": 3}

// run runs a task, which must not end before ctx does.
func (f *fleet) run(ctx context.Context, name string, task func() error) {
	f.running.Go(func() { // ends with ctx
		if err := task(); ctx.Err() == nil {
			f.t.Errorf("%s has ended: %v", name, err)
		}
	})
}

// awaitMore returns when each name has been served by the server that is there now.
func (f *fleet) awaitMore(names []string) {
	f.t.Helper()
	for _, name := range names {
		before := f.done[fleetNames[name]].Load()
		eventually(f.t, name+" goes on", func() bool { return f.done[fleetNames[name]].Load() > before+1 })
	}
}

// enter is what a holder does.
func (f *fleet) enter(ctx context.Context, name string, d time.Duration) error {
	token, _ := fencelock.TokenFrom(ctx)
	f.mu.Lock()
	if f.inside == nil {
		f.inside, f.last = map[string]int{}, map[string]int64{}
	}
	if f.inside[name]++; f.inside[name] > 1 {
		f.t.Errorf("%d hold %q", f.inside[name], name)
	}
	if token <= f.last[name] {
		f.t.Errorf("%q: token %d comes after %d", name, token, f.last[name])
	}
	f.last[name] = token
	f.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(d):
		f.done[fleetNames[name]].Add(1)
	}
	f.mu.Lock()
	f.inside[name]--
	f.mu.Unlock()
	return nil
}

// lead leads for a while, again and again.
func (f *fleet) lead(ctx context.Context) error {
	_ = f.enter(ctx, "lead", 50*time.Millisecond) // it returns nil
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), fencelock.ErrLost) {
		return nil
	}
	return election.ErrResigned
}

func (f *fleet) acquire(ctx context.Context, locks *fencelock.Locker) error {
	for ctx.Err() == nil {
		err := locks.Do(ctx, "lock", func(ctx context.Context) error { return f.enter(ctx, "lock", 10*time.Millisecond) })
		if errors.Is(err, fencelock.ErrConfig) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// count counts in a record.
func (f *fleet) count(ctx context.Context, r driver.Records) error {
	for ctx.Err() == nil {
		rec, err := r.Get(ctx, "count")
		if err == nil {
			n, _ := strconv.Atoi(string(rec.Value))
			_, err = r.Swap(ctx, "count", []byte(strconv.Itoa(n+1)), rec.Version, 0)
		}
		switch {
		case err == nil:
			f.done[fleetNames["record"]].Add(1)
		case errors.Is(err, driver.ErrConfig):
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}
