// Package fence lets the resource that a lock protects refuse the writes of earlier holders.
//
// A lock cannot do that alone. A holder may be paused between its last check and its write, for
// longer than its lease, and then write while another process holds the lock. The fencing token of
// the lock solves this, because later holders have greater tokens. A guard stores for each resource
// a floor: the lowest token that is still valid. In one atomic step with the write it refuses a
// token below the floor, and raises the floor to that of the writer. Several shared holders may all
// write. A later exclusive holder excludes them.
//
//	err := locks.Do(ctx, "invoice:42", func(ctx context.Context) error {
//		return inTx(ctx, db, func(tx *sql.Tx) error {
//			if err := fencepostgres.Check(ctx, tx, "invoice:42"); err != nil {
//				return err // fence.ErrStale: a later holder has written already
//			}
//			_, err := tx.ExecContext(ctx, "UPDATE invoice SET paid = true WHERE id = 42")
//			return err
//		})
//	})
//
// Guards take the token from the context. Without a token they return [ErrNoToken].
//
//   - fencepgx, fencepostgres and fencemysql guard a transaction.
//   - fenceredis and fencegoredis guard keys in Redis.
//   - fenceobject guards objects in a store with conditional writes.
//   - [ReplaceFile] guards a file.
//   - [Transport] and [Handler] guard an HTTP service, and fencegrpc a gRPC service.
//   - [Wrote] is for a column in your own table, and [Fence.Refuse] for a guard of your own.
//
// All writers of a resource must use the same kind of guard and the same lock. Tokens of two names,
// or of one name on two engines, cannot be compared.
package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/heldlock"
)

var (
	// ErrStale means that the guard refused a write, because its token is below the floor of the
	// resource. Nothing was written. A retry under the same lock does not help.
	ErrStale = errors.New("fence: stale token")

	// ErrNoToken means that the context has no fencing token, or those of several locks; then
	// select one with [With]. Nothing was written.
	ErrNoToken = errors.New("fence: no fencing token in the context")

	// ErrResource means that a guard or a store does not accept the name of the resource, such as
	// one that is too long. Nothing was written.
	ErrResource = errors.New("fence: invalid name of a resource")
)

// StaleError is an [ErrStale] with details.
type StaleError struct {
	Resource string // as passed to the guard
	Token    int64
	Floor    int64 // the lowest token that the guard accepts; 0 means unknown
}

func (e *StaleError) Error() string {
	if e.Floor == 0 {
		return fmt.Sprintf("%v: %q refused token %d", ErrStale, e.Resource, e.Token)
	}
	return fmt.Sprintf("%v: %q refused token %d: the lowest valid token is %d", ErrStale, e.Resource, e.Token, e.Floor)
}

// Is makes errors.Is(err, ErrStale) true.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Fence identifies the lock of a write to a guard. It has the values of [fencelock.Held], or values
// that were received from another process. It is comparable.
type Fence struct {
	Name  string // the name of the lock
	Token int64
	Floor int64 // the lowest token that was valid when the lock was granted; equal to Token for an exclusive lock
}

// From returns the fence that guards use: that of the innermost lock that ctx belongs to, or the
// one that [With] or [NewContext] has set since. It returns ErrNoToken if there is none, or if the
// innermost is a set of several locks.
func From(ctx context.Context) (Fence, error) {
	g, ok := ctx.Value(givenKey{}).(given)
	f := g.fence
	if !ok || ctx.Value(heldlock.Inner{}) != g.over.Value(heldlock.Inner{}) {
		held, _ := fencelock.HeldFrom(ctx)
		f = Fence(held)
	}
	if !f.valid() {
		return Fence{}, ErrNoToken
	}
	return f, nil
}

// valid reports whether f can be the fence of a lock.
func (f Fence) valid() bool { return 0 < f.Floor && f.Floor <= f.Token }

// With returns a context whose guards use the lock with that name, out of several that ctx belongs
// to. If ctx does not belong to it, guards return ErrNoToken.
func With(ctx context.Context, name string) context.Context {
	held, _ := fencelock.HeldFor(ctx, name)
	return NewContext(ctx, Fence(held))
}

// NewContext returns a context with a fence that was received from another process: with a message,
// or in the environment of a command (FENCELOCK_TOKEN; for an exclusive lock Floor equals Token). A
// lock or a set of locks that is acquired with this context replaces it.
func NewContext(ctx context.Context, f Fence) context.Context {
	return context.WithValue(ctx, givenKey{}, given{fence: f, over: ctx})
}

// givenKey is the context key of a given.
type givenKey struct{}

// given is a fence that replaces those of a context's locks, until another lock is acquired.
type given struct {
	fence Fence
	over  context.Context // the context in which it was set
}

// Refuse returns the *StaleError for a write that a guard has refused, and calls the tracer of the
// lock. It is for guards of your own. floor is 0 if unknown.
func (f Fence) Refuse(ctx context.Context, resource string, floor int64) error {
	heldlock.ReportStale(ctx, resource, f.Name, f.Token, floor)
	return &StaleError{Resource: resource, Token: f.Token, Floor: floor}
}

// Wrote is for a floor in a column of your own table. rows is the number of rows that a guarded
// UPDATE has changed; if it is 0, Wrote returns a *[StaleError] with an unknown floor. The row must
// exist; see docs/guards.md. Execute the UPDATE in a transaction or on a sql.Conn: a sql.DB may
// execute it twice if the first answer was lost.
//
//	f, err := fence.From(ctx)
//	...
//	r, err := tx.ExecContext(ctx, `UPDATE invoice SET paid = true, fence = greatest(fence, $1)
//		WHERE id = 42 AND fence <= $2`, f.Floor, f.Token)
//	...
//	n, err := r.RowsAffected()
//	...
//	return fence.Wrote(ctx, "invoice:42", n)
func Wrote(ctx context.Context, resource string, rows int64) error {
	f, err := From(ctx)
	if err != nil || rows > 0 {
		return err
	}
	return f.Refuse(ctx, resource, 0)
}
