//go:build unix

package pglock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
)

// TestRecordsInAnOlderSchema: a schema without the table goes on granting locks to a role
// that may not change it; records are there once somebody who may has completed it.
func TestRecordsInAnOlderSchema(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	admin := engine(t, pg.DSN(), nil)
	if err := admin.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, "CREATE ROLE app LOGIN", "DROP TABLE fencelock.record")
	e := engine(t, pg.As("app"), nil)
	l := try(t, e, request("a"))
	if _, err := e.Register().Get(t.Context(), "a"); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("records of a schema that has none, and a role that may not make them: got %v, want ErrConfig", err)
	}
	if err := renew(e, l); err != nil {
		t.Errorf("the lock of before: %v", err)
	}
	if _, err := admin.Register().Swap(t.Context(), "a", []byte("value"), "", 0); err != nil {
		t.Fatal(err)
	}
	rec, err := e.Register().Get(t.Context(), "a")
	if err == nil {
		_, err = e.Register().Swap(t.Context(), "a", []byte("next"), rec.Version, 0)
	}
	if err != nil {
		t.Errorf("the role, once the table is there: %v", err)
	}
	release(t, e, l)
}

// TestSwapWithoutItsStandby: a swap waits for the standby that a commit must have; without
// it nobody knows of it, and it is no conflict.
func TestSwapWithoutItsStandby(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	r := engine(t, pg.DSN(), nil).Register()
	version, err := r.Swap(t.Context(), "a", nil, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer standbyAway(t, pg)()
	for _, key := range []string{"a", "b"} {
		var err error
		for limit := time.Second; ; limit *= 2 {
			_, err = r.Swap(soon(t, limit), key, []byte("value"), map[string]string{"a": version}[key], 0)
			if err == nil || errors.Is(err, driver.ErrUnavailable) || limit > patience {
				break
			} // its context had ended before it began
		}
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConflict) {
			t.Errorf("a swap of %q that no standby has: got %v, want ErrUnavailable", key, err)
		}
	}
}

// TestExpiredRecordsAreSwept: rows that expired some time ago go, and no others.
func TestExpiredRecordsAreSwept(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	if _, err := engine(t, pg.DSN(), nil).Register().Swap(t.Context(), "kept", nil, "", time.Hour); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, `INSERT INTO fencelock.record SELECT 'old ' || i, '', '', now() - interval '2 minutes' FROM generate_series(1, 500) i`,
		`INSERT INTO fencelock.record VALUES ('just expired', '', '', now()), ('for ever', '', '', NULL)`)
	if _, err := engine(t, pg.DSN(), nil).Register().Swap(t.Context(), "new", nil, "", 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what has expired is gone", func() bool { return pg.Query(t, "SELECT count(*) FROM fencelock.record") == "4" })
}
