package pglock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencelock/fencelock/driver"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrDeadlock is in the error of a wait that the server ended because it and
// others waited for one another. It comes with driver.ErrUnavailable, or from the
// transaction the wait was in.
var ErrDeadlock = errors.New("the server found a deadlock; take locks in the same order everywhere")

// refusal is why trying again is no use.
type refusal struct {
	err    error
	config bool // something is set up wrongly
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// refuse makes the error of a server, or a role, that cannot be used as it is set up.
func refuse(format string, args ...any) error {
	return &refusal{fmt.Errorf(format, args...), true}
}

// deny makes the error of a request that is refused just now.
func deny(format string, args ...any) error {
	return &refusal{fmt.Errorf(format, args...), false}
}

// The SQLSTATEs that a locking statement meets.
const (
	failedTransaction = "25P02"
	lockNotAvailable  = "55P03"
	queryCanceled     = "57014"
	deadlockDetected  = "40P01"
)

// The SQLSTATEs that say something about the server or the role, and not about a request.
const (
	insufficientPrivilege = "42501"
	outOfMemory           = "53200" // the lock table is full
	tooManyConnections    = "53300"
	readOnly              = "25006"
	wrongState            = "55000"
	untranslatable        = "22P05" // to the database's encoding
)

// misconfigured are the SQLSTATEs of what only a person can mend.
var misconfigured = []string{
	insufficientPrivilege, wrongState, readOnly,
	"28000", "28P01", // a refused login
	"3D000", // no such database
	"42883", // no such function
	"42P01", // no such table
	"42704", // no such type, which a table is too
}

// transient are the SQLSTATEs, and the first two characters of some, of what passes.
var transient = []string{
	tooManyConnections, lockNotAvailable,
	readOnly,         // of a session, which was a primary's: it is put out of service
	deadlockDetected, // between rows of our tables
	"57", "08",       // an administrator's shutdown, a server that starts up, a connection
}

// serverError returns what the server answered, if it did.
func serverError(err error) (*pgconn.PgError, bool) { return errors.AsType[*pgconn.PgError](err) }

// missing reports whether the server knows no such function, table or schema: somebody
// dropped it. The next session that is opened makes the schema anew.
func missing(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains([]string{"42883", "42P01", "42704", "3F000"}, pg.Code)
}

// failure puts what went wrong, if anything, below driver.ErrConfig or driver.ErrUnavailable, once.
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

// explain adds what to do to some of the server's words.
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
		return fmt.Errorf("the server takes no more connections; raise max_connections: %w", err)
	case insufficientPrivilege:
		if _, told := errors.AsType[*refusal](err); told {
			return err
		}
		return fmt.Errorf("%w; let an administrator run the SQL that fencelock init prints", err)
	}
	return err
}

// passing reports whether an error may be gone at the next attempt: a connection
// that ended or could not be made, as while the server restarts or a standby takes over.
func passing(err error) bool {
	if d, ok := errors.AsType[*dialError](err); ok {
		return !d.final
	}
	if _, ok := errors.AsType[*refusal](err); ok || errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrUnsupported) || errors.Is(err, driver.ErrConfig) {
		return false
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true // of an attempt; the caller looks at its own context
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return true
	}
	return slices.Contains(transient, pg.Code) || slices.Contains(transient, pg.Code[:2]) || missing(err)
}
