package pglock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencelock/fencelock/driver"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrDeadlock is wrapped by the error of a wait that the server ended because of a deadlock. It
// comes together with driver.ErrUnavailable, or from the transaction in which the wait ran.
var ErrDeadlock = errors.New("the server found a deadlock; take locks in the same order everywhere")

// refusal is an error that a retry does not mend.
type refusal struct {
	err    error
	config bool // the setup must be corrected
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// refuse returns the error for a server or a role that cannot be used as it is configured.
func refuse(format string, args ...any) error {
	return &refusal{fmt.Errorf(format, args...), true}
}

// deny returns the error for a request that cannot be granted at present.
func deny(format string, args ...any) error {
	return &refusal{fmt.Errorf(format, args...), false}
}

// SQLSTATEs of locking statements.
const (
	failedTransaction = "25P02"
	lockNotAvailable  = "55P03"
	queryCanceled     = "57014"
	deadlockDetected  = "40P01"
)

// SQLSTATEs that concern the server or the role rather than a request.
const (
	insufficientPrivilege = "42501"
	outOfMemory           = "53200" // the lock table is full
	tooManyConnections    = "53300"
	readOnly              = "25006"
	wrongState            = "55000"
	untranslatable        = "22P05" // to the database's encoding
	protocolViolation     = "08P01" // a pooler that gives no connection reports it
)

// misconfigured are the SQLSTATEs of errors that an administrator must correct.
var misconfigured = []string{
	insufficientPrivilege, wrongState, readOnly,
	"28000", "28P01", // a refused login
	"3D000", // no such database
	"42883", // no such function
	"42P01", // no such table
	"42704", // no such type, which a table is too
}

// transient are the SQLSTATEs, or their first two characters, of errors worth retrying.
var transient = []string{
	tooManyConnections, lockNotAvailable,
	readOnly,         // the session's server was the primary and has been demoted
	deadlockDetected, // between rows of our tables
	"57", "08",       // shutdown by an administrator, start-up, connection errors
}

// serverError returns the error that the server reported, if it answered.
func serverError(err error) (*pgconn.PgError, bool) { return errors.AsType[*pgconn.PgError](err) }

// missing reports whether a function, a table or the schema does not exist. If the schema was
// dropped, the next session creates it.
func missing(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains([]string{"42883", "42P01", "42704", "3F000"}, pg.Code)
}

// failure wraps an error in driver.ErrConfig or driver.ErrUnavailable, unless it has a class
// already.
func failure(err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{driver.ErrUnavailable, driver.ErrConfig, driver.ErrInvalid, driver.ErrUnsupported, driver.ErrHeld} {
		if errors.Is(err, known) {
			return err
		}
	}
	class := driver.ErrUnavailable
	if d, ok := errors.AsType[*dialError](err); ok {
		if d.final {
			class = driver.ErrConfig
		}
		return fmt.Errorf("%w: postgres: %w", class, err)
	}
	if refusing(err) && !passing(err) {
		class = driver.ErrConfig
	}
	return fmt.Errorf("%w: postgres: %w", class, explain(err))
}

// explain adds a remedy to some of the server's errors.
func explain(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch pg.Code {
	case deadlockDetected:
		return fmt.Errorf("%w: %w", ErrDeadlock, err)
	case outOfMemory:
		return fmt.Errorf("the server's lock table is full; raise max_locks_per_transaction: %w", err)
	case tooManyConnections:
		return fmt.Errorf("the server accepts no more connections; raise max_connections: %w", err)
	case insufficientPrivilege:
		if _, refused := errors.AsType[*refusal](err); refused {
			return err
		}
		return fmt.Errorf("%w; ask an administrator to run the SQL that fencelock init prints", err)
	}
	return err
}

// passing reports whether a retry may succeed, for example while the server restarts or a standby
// takes over.
func passing(err error) bool {
	if d, ok := errors.AsType[*dialError](err); ok {
		return !d.final
	}
	if _, ok := errors.AsType[*refusal](err); ok || errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrUnsupported) || errors.Is(err, driver.ErrConfig) {
		return false
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true // the time limit of an attempt; the caller checks its own context
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return true
	}
	return slices.Contains(transient, pg.Code) || slices.Contains(transient, pg.Code[:2]) || missing(err)
}
