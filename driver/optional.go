package driver

import (
	"context"
)

// Optional interfaces of an engine.

// Lister lists holders and waiters.
type Lister interface {
	// List returns the names that q matches and that are held, waited for or blocked by a minimum
	// hold, ordered by name. If some names cannot be read, it may return the others together with
	// an error.
	List(ctx context.Context, q Query) ([]Status, error)
}

// Query selects names for List and Watch.
type Query struct {
	Prefix string // the prefix of the names; empty matches all
	Exact  bool   // Prefix is the whole name
	Scan   bool   // read all stored names even if the engine keeps an index of held ones
}

// Matches reports whether q selects name.
func (q Query) Matches(name string) bool {
	if q.Exact {
		return name == q.Prefix
	}
	return len(name) >= len(q.Prefix) && name[:len(q.Prefix)] == q.Prefix
}

// Breaker ends the acquisitions of a name.
type Breaker interface {
	// Break ends all current acquisitions of name and its minimum hold. It returns a new token,
	// greater than theirs, with which guarded resources refuse their writes. Reachable holders are
	// notified at once. Break returns ErrNotHeld if the name has neither a holder nor a minimum
	// hold.
	Break(ctx context.Context, name, reason string) (token int64, err error)
}

// OwnerBreaker ends one acquisition of a name and no other.
type OwnerBreaker interface {
	// BreakOwner atomically ends the acquisition of name that has this owner. A later holder, and
	// others that share the name, keep their acquisitions. It returns a token greater than the one
	// it ended, with which guarded resources refuse the writes of that holder; if the name is
	// shared, they refuse the writes of all holders at that time. A minimum hold also ends. The
	// holder is notified at once if it is reachable. BreakOwner returns ErrNotHeld if the owner
	// does not hold the name.
	BreakOwner(ctx context.Context, name, owner, reason string) (token int64, err error)
}

// Adopter passes an acquisition from one client to another, which may be in another process.
type Adopter interface {
	// Adopt makes one acquisition, as Acquire does without waiting, in place of another one: in one
	// atomic step it ends the acquisition of lease and grants its name to req. Nobody else is
	// granted the name in between, and waiters keep their places. The token is greater than all
	// earlier ones of the name. A minimum hold of the earlier acquisition continues.
	//
	// Adopt returns ErrNotHeld if the acquisition has ended: it was released, broken or lost, or
	// it was adopted before. It returns ErrInvalid if req has another mode, limit or weight than
	// the acquisition, or a minimum hold. An engine may ignore the limit and the weight if it has no
	// limits. See [Request.CheckAdopt].
	//
	// The engine retries temporary errors under the same owner. If Adopt returns an error, it has
	// changed nothing, or it releases what it was granted. A request that arrives late, after that,
	// has no effect.
	Adopt(ctx context.Context, lease Lease, req Request) (Grant, error)

	// Detach forgets an acquisition of this client: it will neither be renewed nor released by it.
	// The acquisition lasts until its lease expires or is adopted. Detach does no I/O, except to renew
	// a lease that is shorter than its TTL, such as that of a hand-over.
	Detach(lease Lease)
}

// Parter is an engine with parts that fail independently, such as the masters of a cluster or
// several connections. A renewal in one part never waits for those in another.
type Parter interface {
	// Part returns the part that currently serves a lease. It does no I/O.
	Part(lease Lease) string
}

// Resizer changes the limit of a shared name while it is in use.
type Resizer interface {
	// Resize sets the limit of name for all users, from now on. The engine stores it at least as
	// long as the last token of the name. It replaces the limits of the requests, which may then
	// differ from each other. Holders stay, even if they exceed the new limit. Waiters that fit are
	// granted. A request that weighs more than the new limit is granted when nobody else holds the
	// name. Resize returns ErrInvalid for a limit below 1.
	Resize(ctx context.Context, name string, limit int) error
}

// Watcher reports changes of names.
type Watcher interface {
	// Watch calls fn for every event, from one goroutine, until ctx ends or fn returns an error,
	// which it returns. It starts with an EventAcquired or EventWaiting for each current holder and
	// waiter.
	Watch(ctx context.Context, q Query, fn func(Event) error) error
}
