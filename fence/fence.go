// Package fence refuses stale writes at the resource that a lock protects.
//
// A lock alone cannot do that: a holder may be stopped between its last check and its write, for
// longer than its lease, and write while somebody else holds the lock. Its fencing token can. A
// guard stores a floor for each resource, the lowest token that is still valid. In one atomic step
// with the write it refuses a token below the floor, and raises the floor to the one that came with
// the token. So two shared holders can both write, and an exclusive successor shuts both out.
//
//	err := locks.Do(ctx, "invoice:42", func(ctx context.Context) error {
//		return inTx(ctx, db, func(tx *sql.Tx) error {
//			if err := fencepostgres.Check(ctx, tx, "invoice:42"); err != nil {
//				return err // a *fence.StaleError: somebody has held the lock since
//			}
//			_, err := tx.ExecContext(ctx, "UPDATE invoice SET paid = true WHERE id = 42")
//			return err
//		})
//	})
//
// Every guard takes the token from the context. Without one it returns [ErrNoToken] and writes
// nothing. [ReplaceFile] guards a file, [Transport] and [Handler] an HTTP service. The packages
// fencepostgres, fencepgx, fencemysql, fenceredis, fencegoredis, fencegrpc and fenceobject guard
// databases, servers and object stores.
//
// All writers of a resource must use the same guard of it, and the same lock: tokens of two names,
// or of one name on two engines, have no order.
package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/heldlock"
)

var (
	// ErrStale means that the guard refused a write: its token is below the floor.
	// Nothing was written, and trying again under the same lock does not help.
	ErrStale = errors.New("fence: stale token")

	// ErrNoToken means that the context carries no fencing token, or more than one and
	// the guard was not told which: see [With]. Nothing was written.
	ErrNoToken = errors.New("fence: no fencing token in the context")

	// ErrResource means that a store cannot keep a resource of that name: the name is too
	// long, or not in UTF-8. Nothing was written.
	ErrResource = errors.New("fence: the name of the resource cannot be kept")
)

// StaleError is an [ErrStale] with the facts.
type StaleError struct {
	Resource string // as the guard was called
	Token    int64
	Floor    int64 // what the guard has stored; 0 means unknown
}

func (e *StaleError) Error() string {
	if e.Floor == 0 {
		return fmt.Sprintf("%v: %q refused token %d", ErrStale, e.Resource, e.Token)
	}
	return fmt.Sprintf("%v: %q refused token %d, its floor is %d", ErrStale, e.Resource, e.Token, e.Floor)
}

// Is reports that a StaleError is an ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Fence is what a write carries to its guard: the [fencelock.Held] of a lock, or what came
// from elsewhere. It is comparable.
type Fence struct {
	Name  string // of the lock
	Token int64
	Floor int64 // at most Token, and equal to it for an exclusive lock
}

// From returns the fence of the innermost lock that ctx was made for, or what [With] or
// [NewContext] said since. It is ErrNoToken if there is none, and in a set of several
// locks.
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

// valid reports whether f is the fence of a lock.
func (f Fence) valid() bool { return 0 < f.Floor && f.Floor <= f.Token }

// With returns a context whose guards use the lock of that name, of several that ctx
// was made for. If it is none of them, they return ErrNoToken.
func With(ctx context.Context, name string) context.Context {
	held, _ := fencelock.HeldFor(ctx, name)
	return NewContext(ctx, Fence(held))
}

// NewContext returns a context with a fence that came from elsewhere: with a message,
// or in the environment of a command (FENCELOCK_TOKEN; its floor is the token for an
// exclusive lock). A lock that is taken with this context takes its place, and so does a
// set of locks.
func NewContext(ctx context.Context, f Fence) context.Context {
	return context.WithValue(ctx, givenKey{}, given{fence: f, over: ctx})
}

// givenKey is the context key of a given.
type givenKey struct{}

// given is a fence that stands for a context's locks, as long as no other has been taken
// since.
type given struct {
	fence Fence
	over  context.Context // what it was given over
}

// Refuse returns the *StaleError of a write that a guard has refused, and tells the
// tracer of the lock. It is for guards of your own; floor is 0 if unknown.
func (f Fence) Refuse(ctx context.Context, resource string, floor int64) error {
	heldlock.ReportStale(ctx, resource, f.Name, f.Token, floor)
	return &StaleError{Resource: resource, Token: f.Token, Floor: floor}
}

// Wrote is for a floor that stands in a column of your own table: it turns the number
// of rows that a guarded UPDATE has changed into a *[StaleError], of unknown floor, if
// it is 0. The row must exist; see docs/guards.md. Make the UPDATE in a transaction or on a
// sql.Conn: a sql.DB itself may make it twice, if the answer to the first was lost.
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
