package fencelock

import (
	"context"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/hold"
)

// Lease identifies an acquisition to a process that is to adopt it; see [Locker.Adopt]. It can be
// sent as JSON. A process that has it can take the lock over, so send it only to processes that may.
// Its fields are
//
//	Name  string
//	Owner string
//	Token int64
//	Mode  Mode
//	TTL   time.Duration
type Lease = driver.Lease

// Lease returns what another process needs to adopt the lock; see [Locker.Adopt]. The lock stays
// held and renewed.
func (l *Lock) Lease() Lease { return l.lease }

// Detach ends the hold at once, as Release does, but does not release the lock: the engine keeps it
// until another process adopts it (see [Locker.Adopt]), or until its lease expires. That is after
// one TTL at the latest, and seldom before half of it. The contexts of the lock have ended when
// Detach returns. It does no I/O, except on Redis right after a hand-over: it then waits up to two
// seconds for the renewal that extends the lease to its TTL.
//
// If the lock was lost or released before, Detach returns the error of [Lock.Err]. On an engine
// that cannot pass locks on it returns ErrUnsupported, and the lock stays held. After a successful
// Detach, Release does nothing and returns nil.
func (l *Lock) Detach() error {
	adopter, ok := l.locker.engine.(driver.Adopter)
	if !ok {
		return l.locker.cannotAdopt()
	}
	if err := l.Err(); err != nil {
		return err
	}
	if err := l.close(phaseDetached); err != nil { // another goroutine was first
		return err
	}
	l.feed(hold.Event{Kind: hold.Released}, clock.Now())
	if phase, _ := l.state(); phase != phaseDetached {
		return l.Err()
	}
	adopter.Detach(l.lease)
	l.holdEnd()
	return nil
}

// Adopt takes over a lock that another process has acquired, and returns it as [Locker.TryAcquire]
// does: with a fencing token of its own, renewed, to be released by the caller. The lease is what
// [Lock.Lease] returned in the other process. The settings of the lock, such as TTL, Grace, MaxHold
// and Note, are the Options of l. Shared, Limit and Weight must be those with which the lock was
// acquired, and MinHold must be zero; otherwise Adopt returns ErrInvalid. A minimum hold of the
// acquisition continues.
//
// The engine replaces the holder in one step. Nobody else is granted the lock in between, not even
// a waiter, and the token is greater than the previous one. Adopt returns ErrNotHeld if the lock is
// not held under this lease any more: it was released, broken or lost, or a process has adopted it,
// as when a message with the lease is delivered twice. After another error nobody may hold the
// lock: what was adopted without an answer is released.
//
// The process that passes the lock on should stop its work and call [Lock.Detach] before it sends
// the lease. Then no two processes consider themselves holders at the same time. If it does not,
// it consents to an overlap: the adopter begins at once, and the previous holder learns of its loss
// at its next renewal, within a third of its TTL. In that time only its token tells it from the
// adopter: a guard refuses its writes once the adopter has written (package fence). Of several
// shared holders only the previous one is replaced. A guard refuses its writes only after a later
// exclusive holder has written, as for every shared lock.
//
// Locks on files and PostgreSQL belong to a process or a connection and cannot be adopted: Adopt
// returns ErrUnsupported. The locks of a set are adopted one by one. ctx bounds the call only.
func (l *Locker) Adopt(ctx context.Context, lease Lease) (*Lock, error) {
	if _, ok := l.engine.(driver.Adopter); !ok {
		return nil, l.cannotAdopt()
	}
	req := l.request(ctx, lease.Name, false)
	if err := req.CheckAdopt(l.traits, lease); err != nil {
		return nil, err
	}
	return l.obtain(ctx, req, &lease)
}

func (l *Locker) cannotAdopt() error { return l.unsupported("pass a lock to another process") }
