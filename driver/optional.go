package driver

import (
	"context"
)

// What an engine may do besides. One that cannot does not implement it.

// Lister shows who holds and who waits.
type Lister interface {
	// List returns the names with the given prefix that are held, waited for or
	// closed by a minimum hold, ordered by name. Exact wants that one name only.
	// If some names cannot be read the others may come together with an error.
	List(ctx context.Context, q Query) ([]Status, error)
}

// Query chooses names for List and Watch.
type Query struct {
	Prefix string // a prefix of the names; empty means all
	Exact  bool   // Prefix is a whole name
	Scan   bool   // look through all that is stored, where an engine keeps an index of held names
}

// Matches reports whether q chooses name.
func (q Query) Matches(name string) bool {
	if q.Exact {
		return name == q.Prefix
	}
	return len(name) >= len(q.Prefix) && name[:len(q.Prefix)] == q.Prefix
}

// Breaker takes a name away from its holders.
type Breaker interface {
	// Break ends every current acquisition of name, and its minimum hold, and
	// returns a fresh token, greater than theirs, that shuts them out of guarded
	// resources. Holders that can be reached learn at once. ErrNotHeld when nobody
	// holds the name and no minimum hold closes it.
	Break(ctx context.Context, name, reason string) (token int64, err error)
}

// OwnerBreaker takes a name away from one acquisition, and from nobody else.
type OwnerBreaker interface {
	// BreakOwner ends the acquisition of name that has this owner, as one step: a
	// successor that came meanwhile, and those who share the name, keep what they
	// have. It returns a token that is greater than the one it ended, and shuts it
	// out of guarded resources; and every other holder that is there by then, if the
	// name is shared. A minimum hold ends too. The holder learns at once if it can be
	// reached. ErrNotHeld when the owner does not hold the name (any more).
	BreakOwner(ctx context.Context, name, owner, reason string) (token int64, err error)
}

// Parter is an engine whose parts fail apart from one another, such as the
// masters of a cluster or several connections. Renewals of one part never wait
// for those of another.
type Parter interface {
	// Part says which part answers for a lease just now. It does no I/O.
	Part(lease Lease) string
}

// Resizer changes the limit of a shared name while it is in use.
type Resizer interface {
	// Resize sets the limit of name for everybody, from now on and at least as
	// long as the name's last token is remembered: it takes the place of the
	// limit of every request that has one, and these may then differ. Holders
	// stay, even if they are too many now; waiters who fit are granted. A request
	// that weighs more than the new limit holds the name alone. ErrInvalid for a
	// limit below 1.
	Resize(ctx context.Context, name string, limit int) error
}

// Watcher follows what happens to names.
type Watcher interface {
	// Watch calls fn for every event, from one goroutine, until ctx ends or fn
	// returns an error, which it returns. It starts with an EventAcquired or
	// EventWaiting for what stands already.
	Watch(ctx context.Context, q Query, fn func(Event) error) error
}
