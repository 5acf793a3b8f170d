package pglock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// TestLongerTTLWithoutItsStandby: a session asks for a longer MaxTTL while the standby is away. Its wait is
// cancelled, which leaves the MaxTTL committed on this server alone. A promoted standby would not know it and
// grant too early, so nobody gets a lock before a standby has it. Afterwards nobody waits for one.
func TestLongerTTLWithoutItsStandby(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	first := engine(t, pg.DSN(), &pglock.Config{MaxTTL: 10 * time.Second})
	release(t, first, try(t, first, shortRequest("a")))
	end := standbyAway(t, pg)
	for range 2 { // the second one finds what the first one has left
		e := engine(t, pg.DSN(), &pglock.Config{MaxTTL: 20 * time.Second})
		if _, err := e.Acquire(soon(t, 6*time.Second), shortRequest("a")); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "standby") {
			t.Errorf("a longer MaxTTL that no standby has: %v", err)
		}
		must(t, e.Close())
	}
	eventually(t, "the MaxTTL is on this server", func() bool { return pg.Query(t, "SELECT max_ttl FROM fencelock.epoch") == "20000" })

	end()
	pg.Exec(t, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
	e := engine(t, pg.DSN(), &pglock.Config{MaxTTL: 20 * time.Second})
	release(t, e, regained(t, e, shortRequest("a")))
	defer standbyAway(t, pg)()
	e = engine(t, pg.DSN(), &pglock.Config{MaxTTL: 20 * time.Second})
	release(t, e, try(t, e, shortRequest("a")))
}

// TestCancelledCommit: an administrator cancels the commits that wait for a standby. The server calls that a
// success, with a warning, also to a role that does not want to see warnings.
func TestCancelledCommit(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, "ALTER ROLE CURRENT_USER SET client_min_messages = error")
	e := engine(t, pg.DSN(), nil)
	version, err := e.Records().Swap(t.Context(), "key", []byte("one"), "", 0)
	must(t, err)
	defer standbyAway(t, pg)()
	cancelled := make(chan bool)
	go func() { // ends with the swap
		for {
			select {
			case <-cancelled:
				return
			case <-time.After(20 * time.Millisecond):
				pg.Exec(t, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
			}
		}
	}()
	_, err = e.Records().Swap(t.Context(), "key", []byte("two"), version, 0)
	close(cancelled)
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a swap that no standby has: %v", err)
	}
}
