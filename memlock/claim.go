package memlock

import (
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/google/uuid"
)

// client is the state of the fault switches for one client. The store's mutex guards all of it.
type client struct {
	frozen  chan struct{} // not nil while frozen; closed to thaw
	silent  bool          // it let a grant expire, and has not been active since
	refusal error         // error of every call; nil if none
	killed  bool
	delay   time.Duration
	backlog []func() // callbacks that became due while frozen
}

// claim is one request. A claim that is granted after a wait is first pending, with a short lease,
// because its client may be frozen or gone. It gets its full lease when the client's goroutine
// wakes up and confirms it. A claim that is granted immediately is confirmed in the same step.
type claim struct {
	client *client
	req    driver.Request
	owner  string
	waited driver.Waited // what its client knows of its wait; used by its goroutine only
	wake   signal        // wakes its goroutine

	// The store's mutex guards the rest.
	ticket  int64     // its place among waiters; 0 if it never waited
	joined  time.Time // when it began to wait
	token   int64     // not 0 while it holds the name
	since   time.Time // when it began to hold
	until   time.Time // when its lease ends
	pending bool      // granted, but not confirmed by its client
	grant   driver.Grant
}

// newClaim checks a request and gives it an owner.
func newClaim(client *client, req driver.Request, promises driver.Traits) (*claim, error) {
	if err := req.Check(promises); err != nil {
		return nil, err
	}
	owner := uuid.Must(uuid.NewV7()).String() // never fails
	return &claim{client: client, req: req, owner: owner, wake: newSignal()}, nil
}

// granted reports whether the client has its grant.
func (c *claim) granted() bool { return c.grant.Token != 0 }

// event returns an event of the claim for watchers.
func (c *claim) event(kind driver.EventKind, at time.Time) driver.Event {
	return driver.Event{Identity: c.req.Identity, Kind: kind, Name: c.req.Name, Owner: c.owner, Token: c.token, Time: at}
}

// weight returns how much of a limit the claim uses, as List reports it.
func (c *claim) weight() int {
	if c.req.Limit == 0 {
		return 0
	}
	return c.req.Units()
}

// signal wakes one goroutine. Several rings before it wakes count as one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// send does not block, so it may be called under the mutex.
func (b signal) send() {
	select {
	case b <- struct{}{}:
	default:
	}
}
