//go:build unix

package pglock_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// TestSharedHolderComesWhenAnotherGoes: two shared holders of one process have one lock of the
// server between them. One that comes while the other goes must not be left without it.
func TestSharedHolderComesWhenAnotherGoes(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	req := shared(request("a"), 0)
	conn := pg.Connect(t)
	first := try(t, e, req)
	for range 300 {
		gone := make(chan error, 1)
		go func(l driver.Lease) { gone <- e.Release(context.Background(), l) }(first) // ends with the release
		first = try(t, e, req)
		if err := await(t, gone, "the end of a release"); err != nil {
			t.Fatal(err)
		}
		var locks int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM `+locksHere+` WHERE locktype = 'advisory' AND objsubid = 1
			AND (classid::bigint << 32 | objid::bigint) = hashtextextended('a', 0)`).Scan(&locks); err != nil || locks != 1 {
			t.Fatalf("the server has %d locks of a name with one holder: %v", locks, err)
		}
	}
	release(t, e, first)
	other := engine(t, pg.DSN(), nil)
	release(t, other, try(t, other, request("a")))
}

// TestSharedHolderWhoseReleaseFails: the others of its process keep their lock.
func TestSharedHolderWhoseReleaseFails(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	req := request("a")
	first, second := try(t, e, shared(req, 0)), try(t, e, shared(req, 0))
	tx, err := pg.Connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM fencelock.sharer WHERE owner = $1 FOR UPDATE", first.Owner); err != nil {
		t.Fatal(err)
	}
	_ = e.Release(t.Context(), first) // the server gives the row up to nobody else
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := renew(e, second); err != nil {
		t.Fatal(err)
	}
	if got := pg.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'advisory' AND objsubid = 1"); got != "1" {
		t.Errorf("the server has %s locks of a name with one holder", got)
	}
	release(t, e, second)
	waits := request("a")
	waits.Wait = true
	g, err := other.Acquire(t.Context(), waits)
	if err != nil {
		t.Fatal(err)
	}
	release(t, other, leaseOf(waits, g))
}

// TestFloorBesideATokenThatIsNotCommitted: of two shared holders who come at once, the floor of
// neither is above the token of the other, or a guard would shut one of them out.
func TestFloorBesideATokenThatIsNotCommitted(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	engines := []*pglock.Engine{engine(t, pg.DSN(), patient), engine(t, pg.DSN(), patient)}
	req := shared(long("a"), 0)
	for _, e := range engines { // their connections are open then
		release(t, e, try(t, e, req))
	}
	stopAt(t, pg, "sharer", "AFTER INSERT")
	open := shut(t, pg.Connect(t))
	came := make(chan driver.Grant, len(engines))
	for _, e := range engines {
		go func() { // ends with the grant
			g, err := e.Acquire(context.Background(), req)
			if err != nil {
				t.Error(err)
			}
			came <- g
		}()
		stopped(t, pg)
	}
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if backends(t, pg, "wait_event = 'advisory'") == "2" {
			break // the second one has drawn its token as well
		}
	}
	open()
	first, second := await(t, came, "a grant"), await(t, came, "another grant")
	if first.Floor > second.Token || second.Floor > first.Token {
		t.Errorf("two holders at once: token %d with floor %d, and token %d with floor %d", first.Token, first.Floor, second.Token, second.Floor)
	}
}
