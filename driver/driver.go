// Package driver defines what an engine implements. Programs that use locks do not need it. To
// bring an engine of your own, implement [Engine], run the conformance suite of package drivertest,
// and pass the engine to fencelock.New.
//
// # Required and optional
//
// Every engine has the four methods of [Engine]. It reads Name, Mode, TTL, Wait, MinHold and
// Identity of a [Request]. It calls OnWait once when a request joins the queue, and OnLost at most
// once when it learns of a loss. [Request.Check] refuses whatever the engine's [Traits] do not
// promise. Every engine has shared acquisitions. Limits, the order of waiters, the longest minimum
// hold and leases are Traits; an engine without leases ends a lock with its process. Everything
// else is an interface that an engine implements if it can: [Lister], [Breaker], [OwnerBreaker],
// [Watcher], [Resizer], [RecordKeeper], [Parter], [Inspector], and with Traits.Rates [RateLimiter].
// The conformance suite skips what an engine does not have, and reports that.
//
// # Acquisitions
//
// An acquisition is one successful acquire, on every engine: it has an owner that no other
// acquisition has, a fencing token greater than every earlier token of that name, and a TTL. Renew
// and Release act on the acquisition, never on the name, so a late or repeated release cannot free
// a successor's lock.
package driver

import (
	"context"
	"time"
)

// Engine grants, renews and releases acquisitions. All methods may be called
// from many goroutines at once. No acquisition is re-entrant: two requests for
// one name exclude each other even when one process makes both.
type Engine interface {
	// Traits says what the engine promises. It does no I/O.
	Traits() Traits

	// Acquire makes one acquisition.
	//
	// Without req.Wait it answers at once: a grant, or a *HeldError. It never
	// barges past a live waiter. With req.Wait it blocks until granted or until
	// ctx ends; it then leaves no trace behind (a grant in the same instant is
	// given back) and returns an error that satisfies errors.Is(err, ctx.Err())
	// and either ErrHeld or ErrUnavailable, as [Waited] says. A ctx that has ended
	// before is its own error alone, whether the name is free or not, and nothing
	// is sent.
	//
	// The engine retries its own passing errors, with exponential backoff and
	// jitter, under the same owner, until ctx ends. What it cannot ride out is
	// ErrUnavailable, wrapped around the engine's own words. ErrConfig it does
	// not retry.
	Acquire(ctx context.Context, req Request) (Grant, error)

	// Renew extends acquisitions to their TTL from now and answers for each: nil,
	// ErrNotHeld (gone for good), or another error (worth another try). The TTL of a
	// lease is that of its request. With another one, which must not exceed
	// Traits.MaxTTL, nil means that the lease runs for the shorter of the two at
	// least; some engines go by the one, some by the other. An
	// engine without leases verifies that the acquisition still stands. It never
	// revives an acquisition that expired or was broken, and changes no token.
	// When ctx ends it returns the answers that came, and an error for each lease
	// without one: a part that does not answer costs no other lease its renewal.
	Renew(ctx context.Context, leases []Lease) []error

	// Release ends an acquisition. An acquisition that no longer stands is
	// ErrNotHeld, and whoever holds the name by then is left alone.
	Release(ctx context.Context, lease Lease) error
}

// Order is what an engine promises about the order of waiters.
type Order int

// The orders.
const (
	OrderNone    Order = iota // no promise
	OrderProcess              // first come, first served between processes, one turn each
	OrderAll                  // first come, first served between all waiters
)

// Traits are an engine's promises. The exam chooses its cases by them.
type Traits struct {
	Engine string        // the engine in one word, such as "memory"
	Leased bool          // an acquisition that is not renewed ends after its TTL
	Order  Order         // the order of waiters
	Limits bool          // shared acquisitions with a limit
	Rates  bool          // it is a RateLimiter
	MinTTL time.Duration // the shortest TTL; 0 means 100 ms
	MaxTTL time.Duration // the longest TTL; 0 means no bound

	// MaxMinHold is the longest minimum hold that the engine is sure to remember. 0 means no
	// bound. If it is negative, the engine may forget every minimum hold.
	MaxMinHold time.Duration
}

// Mode says whom an acquisition excludes.
type Mode int

// The modes.
const (
	Exclusive Mode = iota // excludes every other acquisition
	Shared                // excludes exclusive ones
)

// String returns "exclusive" or "shared".
func (m Mode) String() string {
	if m == Shared {
		return "shared"
	}
	return "exclusive"
}

// Request asks for one acquisition.
type Request struct {
	Name    string        // UTF-8, 1 to 512 bytes, no NUL; see CheckName
	Mode    Mode          // exclusive or shared
	Limit   int           // with Shared: at most so many holders, or so much weight, up to MaxLimit; 0 means no limit
	Weight  int           // with Limit: how much of it this acquisition takes; 0 means 1
	TTL     time.Duration // the lease
	MinHold time.Duration // with Exclusive: nobody else gets the name before this is over, even if the holder dies
	Wait    bool          // wait for a turn
	Identity

	// OnLost, when set, is called at most once, and must not block, as soon as the
	// engine learns by itself that a granted acquisition is gone: broken,
	// deleted, taken. It may be called before Acquire has returned.
	OnLost func(cause error)

	// OnWait, when set, is called once when the request joins the queue, with
	// what the engine knows by then, and must not block. A waiter is listed (see
	// [Lister]) whether anybody wants to hear of it or not.
	//
	// No mutex of the engine is held while OnWait or OnLost runs. If one panics, and
	// the caller of the engine recovers, the request has left no trace behind.
	OnWait func(WaitInfo)
}

// WaitInfo is what an engine knows about a waiting request.
type WaitInfo struct {
	Position int        // 1 is next; 0 means unknown
	Held     *HeldError // who is in the way; nil means unknown
	Trouble  error      // why the engine itself grants nothing now; nil means it works
}

// Identity tells people who holds or waits. No lock decision depends on it.
type Identity struct {
	Host string
	PID  int
	Note string

	// Trace is the traceparent of what the request was made for, such as the span of its
	// acquisition; empty if there is none. An engine that stores the note stores it too; it
	// need not store one that is not a [ValidTrace], and refuses no request for it. Programs
	// see it; no text of an error has it.
	Trace string
}

// Lease names one acquisition to Renew and Release.
type Lease struct {
	Name  string
	Owner string
	Token int64
	Mode  Mode
	TTL   time.Duration // of the request
}

// Grant is a successful acquire.
type Grant struct {
	Owner string // unique to this acquisition, such as a UUIDv7
	Token int64  // the fencing token, > 0
	Floor int64  // the smallest token among the current holders; Token if exclusive

	// Sent is the local time (time.Now, with its monotonic reading) before the
	// request whose answer proves that the lease runs for TTL was sent. Zero
	// means the engine cannot tell (a grant that ended a wait), and the caller
	// must confirm with Renew before it believes in any deadline.
	Sent time.Time
	TTL  time.Duration // how long the lease runs from Sent; ignored unless leased
}
