//go:build unix

package pglock_test

import (
	"fmt"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/enginetest"
)

// pin keeps others from deleting the row of a holder until unpin.
func pin(t *testing.T, pg *enginetest.Postgres, l driver.Lease) (unpin func()) {
	t.Helper()
	eventually(t, "the holder is written down", func() bool {
		return pg.Query(t, "SELECT count(*) FROM fencelock.holder WHERE owner = '"+l.Owner+"'") == "1"
	})
	tx, err := pg.Connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM fencelock.holder WHERE owner = $1 FOR UPDATE", l.Owner); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestReleaseBehindASlowOne: three holders come one after the other. The rows of
// the first two are still there when the third asks, and the first one, which was
// slower to delete its own, is done before the second.
func TestReleaseBehindASlowOne(t *testing.T) {
	pg := enginetest.StartPostgres(t)
	a, b, c := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	first := try(t, a, request("a"))
	backend := fmt.Sprint(holder(t, pg, "a"))
	unpinFirst := pin(t, pg, first)
	release(t, a, first)
	second := try(t, b, request("a"))
	unpinSecond := pin(t, pg, second)
	release(t, b, second)
	unpinFirst()
	eventually(t, "the first one is done", func() bool {
		return pg.Query(t, "SELECT count(*) FROM pg_locks WHERE classid = 1717923431 AND pid = "+backend) == "0"
	})
	third := try(t, c, request("a"))
	if third.Token <= second.Token || second.Token <= first.Token {
		t.Errorf("tokens %d, %d, %d", first.Token, second.Token, third.Token)
	}
	unpinSecond()
	release(t, c, third)
	eventually(t, "nothing is left behind", func() bool {
		return pg.Query(t, "SELECT (SELECT count(*) FROM fencelock.holder) + (SELECT count(*) FROM pg_locks WHERE classid = 1717923431)") == "0"
	})
}

// TestVanishedHolderBehindASlowRelease: a holder whose connection was cut closes
// the name, though one before it has not yet deleted its row.
func TestVanishedHolderBehindASlowRelease(t *testing.T) {
	pg := enginetest.StartPostgres(t)
	a, b, c := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	first := try(t, a, request("a"))
	defer pin(t, pg, first)()
	release(t, a, first)
	second := try(t, b, request("a"))
	pin(t, pg, second)()
	pg.Terminate(t, holder(t, pg, "a"))
	eventually(t, "the server has freed the lock", func() bool {
		return pg.Query(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1") == "0"
	})
	if held := refused(t, c, request("a")); held.Owner != second.Owner {
		t.Errorf("refused for %q, want the vanished %q", held.Owner, second.Owner)
	}
}

// TestSameSessionAgain: a session that let go takes the name again before the row
// is deleted. The mark that says so is its own, and does not stop itself.
func TestSameSessionAgain(t *testing.T) {
	pg := enginetest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	first := try(t, e, request("a"))
	unpin := pin(t, pg, first)
	release(t, e, first)
	second := try(t, e, request("a"))
	release(t, e, second)
	third := try(t, e, shared(request("a"), 0))
	release(t, e, third)
	unpin()
}
