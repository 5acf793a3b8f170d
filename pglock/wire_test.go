//go:build unix

package pglock_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencelock/fencelock/internal/enginetest"
	"github.com/fencelock/fencelock/pglock"
)

// TestFailureInTheMiddleOfATransaction: of statements that share a transaction
// those before one that failed say so, and those after it are run all the same,
// also when they were to be prepared in it.
func TestFailureInTheMiddleOfATransaction(t *testing.T) {
	pg := enginetest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	release(t, e, try(t, e, request("a")))
	errs, err := e.Grouped(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(errs[0], pglock.ErrAborted) {
		t.Errorf("before the failure: %v", errs[0])
	}
	if bad, ok := errors.AsType[*pgconn.PgError](errs[1]); !ok || bad.Code != "22P02" {
		t.Errorf("the failure: %v", errs[1])
	}
	if errs[2] != nil {
		t.Errorf("after the failure: %v", errs[2])
	}
}
