package pglock

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock/driver"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrDeadlock is in the error of a wait that the server ended because it and
// others waited for one another. It comes with driver.ErrUnavailable, or from the
// transaction the wait was in.
var ErrDeadlock = errors.New("the server found a deadlock; take locks in the same order everywhere")

// refusal is why the engine does not work with a server: trying again is no use.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(format string, args ...any) error {
	return &refusal{fmt.Errorf(format, args...)}
}

// unavailable puts what went wrong below driver.ErrUnavailable, once.
func unavailable(err error) error {
	if errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: postgres: %w", driver.ErrUnavailable, explain(err))
}

// explain adds what to do to some of the server's words.
func explain(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch pg.Code {
	case deadlockDetected:
		return fmt.Errorf("%w: %w", ErrDeadlock, err)
	case "53200":
		return fmt.Errorf("the server's lock table is full; raise max_locks_per_transaction: %w", err)
	case "53300":
		return fmt.Errorf("the server takes no more connections; raise max_connections: %w", err)
	case "42501":
		return fmt.Errorf("%w; let an administrator run the SQL that fencelock init prints", err)
	}
	return err
}

// passing reports whether an error may be gone at the next attempt: a connection
// that ended or could not be made, as while the server restarts.
func passing(err error) bool {
	if _, ok := errors.AsType[*refusal](err); ok || errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrUnsupported) {
		return false
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true // of an attempt; the caller looks at its own context
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return true
	}
	switch pg.Code[:2] {
	case "57", "08": // an administrator's shutdown, a server that starts up, a connection
		return true
	}
	switch pg.Code {
	case "53300", "25006": // too many connections; read-only, as a standby just before its promotion
		return true
	case deadlockDetected: // between rows of our tables
		return true
	}
	return false
}
