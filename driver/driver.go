// Package driver defines what an engine implements. Programs that use locks do not need it. To
// bring your own engine, implement [Engine], pass the conformance suite in package drivertest, and
// give the engine to fencelock.New.
//
// # Required and optional features
//
// Every engine has the four methods of [Engine]. It must use the fields Name, Mode, TTL, Wait,
// MinHold and Identity of a [Request], call OnWait once when a request joins the queue, and call
// OnLost at most once when it detects a loss. It calls [Request.Check] first, which refuses
// requests that the [Traits] of the engine do not allow.
//
// Every engine supports shared acquisitions. Traits say whether it has leases, limits and rates,
// which order it gives to waiters, and how long TTLs and minimum holds may be. An engine without
// leases ends a lock when its process ends. Other features are interfaces that an engine may
// implement: [Lister], [Breaker], [OwnerBreaker], [Adopter], [Watcher], [Resizer], [RecordKeeper],
// [Parter], [Inspector], and, together with Traits.Rates, [RateLimiter]. The suite skips the cases of
// missing features and reports that.
//
// # Terms
//
// An acquisition is one successful acquire. It has an owner, which no other acquisition has, a
// fencing token, which is greater than every earlier token of that name, and a TTL. Renew and
// Release apply to an acquisition and not to a name, so a late or repeated release cannot free the
// lock of a successor.
package driver

import (
	"context"
	"time"
)

// Engine grants, renews and releases acquisitions. Its methods may be called concurrently.
// Acquisitions are not re-entrant: two requests for one name exclude each other even within one
// process.
type Engine interface {
	// Traits returns what the engine supports and promises. It does no I/O.
	Traits() Traits

	// Acquire makes one acquisition.
	//
	// Without req.Wait it answers at once, with a grant or a *HeldError. It does not overtake a
	// live waiter.
	//
	// With req.Wait it blocks until the lock is granted or ctx ends. If ctx ends, it leaves nothing
	// behind: a grant of the same instant is released. The error then satisfies errors.Is(err,
	// ctx.Err()) and either ErrHeld or ErrUnavailable; see [Waited]. If ctx has ended before the
	// call, Acquire sends nothing and returns only the error of ctx, whether the name is free or
	// not.
	//
	// The engine retries temporary errors under the same owner, with exponential backoff and
	// jitter, until ctx ends. Errors that it cannot retry are ErrUnavailable and wrap the cause. It
	// does not retry ErrConfig.
	Acquire(ctx context.Context, req Request) (Grant, error)

	// Renew extends leases to their TTL from now. It returns one error per lease: nil, ErrNotHeld
	// (the acquisition is gone for good), or another error (a retry may succeed). lease.TTL is
	// normally the TTL of the request. If it differs, it must not exceed Traits.MaxTTL; nil then
	// means that the lease runs for at least the shorter of the two. An engine without leases
	// checks that the acquisition still exists. Renew never revives an acquisition that has expired
	// or was broken, and never changes a token.
	//
	// When ctx ends, Renew returns the answers that it has, and an error for each other lease. An
	// unreachable part of the engine must not prevent the renewal of other leases.
	Renew(ctx context.Context, leases []Lease) []error

	// Release ends an acquisition. It returns ErrNotHeld if the acquisition has already ended. It
	// never affects the current holder of the name if that is another acquisition.
	Release(ctx context.Context, lease Lease) error
}

// Order is the order in which an engine serves waiters.
type Order int

// The orders.
const (
	OrderNone    Order = iota // no guaranteed order
	OrderProcess              // first come, first served between processes, one turn each
	OrderAll                  // first come, first served between all waiters
)

// Traits are what an engine supports and promises. The conformance suite selects its cases by them.
type Traits struct {
	Engine string        // the name of the engine in one word, such as "memory"
	Leased bool          // whether an acquisition that is not renewed ends after its TTL
	Order  Order         // the order of waiters
	Limits bool          // whether shared acquisitions may have a limit
	Rates  bool          // whether the engine is a RateLimiter
	MinTTL time.Duration // the shortest TTL; 0 means the constant MinTTL, 100 ms
	MaxTTL time.Duration // the longest TTL; 0 means no maximum

	// MaxMinHold is the longest minimum hold that the engine can guarantee. 0 means no maximum. A
	// negative value means that it can guarantee none, since its server may evict keys.
	MaxMinHold time.Duration
}

// Mode says which other acquisitions an acquisition excludes.
type Mode int

// The modes.
const (
	Exclusive Mode = iota // excludes all other acquisitions
	Shared                // excludes exclusive acquisitions
)

// String returns "exclusive" or "shared".
func (m Mode) String() string {
	if m == Shared {
		return "shared"
	}
	return "exclusive"
}

// Request describes the acquisition that a caller wants.
type Request struct {
	Name    string        // UTF-8, 1 to 512 bytes, no NUL; see CheckName
	Mode    Mode          // exclusive or shared
	Limit   int           // with Shared: the maximum total weight of the holders, up to MaxLimit; 0 means no limit
	Weight  int           // with Limit: how many units of the limit this acquisition takes; 0 means 1
	TTL     time.Duration // the length of the lease
	MinHold time.Duration // with Exclusive: how long the name stays unavailable to others, even if the holder dies
	Wait    bool          // wait in the queue until granted
	Identity

	// OnLost, if set, is called when the engine detects that a granted acquisition is gone: broken
	// (the cause is ErrBroken), deleted or taken over. It is called at most once, possibly before
	// Acquire has returned. It must not block.
	OnLost func(cause error)

	// OnWait, if set, is called once when the request joins the queue, with what the engine knows
	// at that time. It must not block. Waiters are listed (see [Lister]) whether OnWait is set or
	// not.
	//
	// The engine holds no mutex while it calls OnWait or OnLost. If a callback panics and the
	// caller of the engine recovers, the request has left nothing behind.
	OnWait func(WaitInfo)
}

// WaitInfo describes a waiting request.
type WaitInfo struct {
	Position int        // 1 is next; 0 means unknown
	Held     *HeldError // the current holder; nil means unknown
	Trouble  error      // why the engine itself grants nothing now; nil if it works
}

// Identity describes a holder or waiter to people. No lock decision depends on it.
type Identity struct {
	Host string
	PID  int
	Note string

	// Trace is the traceparent of the request by W3C Trace Context, version 00, such as that of the span of
	// its acquisition; empty if there is none. An engine that stores the note also stores the trace. It need
	// not store an invalid one, and must not refuse a request because of it. Error texts do not contain it.
	Trace string

	// Kind says what the acquisition is for, such as "election"; empty for a lock like any other. An
	// engine that stores the note also stores a kind of at most 32 letters, digits, "-", "_" and
	// ".". It need not store others, and must not refuse a request because of them.
	Kind string

	// MaxHold is how long the requester intends to hold the lock at most, counted from the grant; 0
	// means no maximum. The engine does not enforce it. An engine that stores the note also stores
	// whole milliseconds of it.
	MaxHold time.Duration
}

// Lease identifies one acquisition for Renew, Release and Adopt.
type Lease struct {
	Name  string        `json:"name"`
	Owner string        `json:"owner"`
	Token int64         `json:"token"`
	Mode  Mode          `json:"mode"`
	TTL   time.Duration `json:"ttl"` // the TTL of the request
}

// Grant is the result of a successful acquire.
type Grant struct {
	Owner string // unique to this acquisition, such as a UUIDv7
	Token int64  // the fencing token, greater than 0
	Floor int64  // the lowest token among the current holders; equal to Token if exclusive

	// Sent is a local time (time.Now, with its monotonic reading) from before the request was sent
	// whose answer proves that the lease runs for TTL. Zero means that the engine does not know,
	// such as for a grant that ended a wait. The caller must then call Renew before it relies on a
	// deadline.
	Sent time.Time
	TTL  time.Duration // how long the lease runs from Sent; ignored without leases
}
