package memlock

import (
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/google/uuid"
)

// client is what the switches have done to one client of a store, whose mutex guards
// all of it.
type client struct {
	frozen  chan struct{} // not nil while frozen; closed to thaw
	silent  bool          // let a grant lapse and was not heard of since
	refusal error         // what every call fails with
	killed  bool
	delay   time.Duration
	backlog []func() // callbacks that fell due while frozen
}

// claim is one request on its way from waiting to holding. A claim that ends a wait is
// pending at first: it has a short lease, since its client may be frozen or gone, and
// gets a whole one when the client's goroutine wakes and confirms it. A claim that was
// granted at once is confirmed in the same step.
type claim struct {
	client *client
	req    driver.Request
	owner  string
	heard  driver.Waited // what its client knows of its wait; its goroutine uses it alone
	wake   bell          // rings when there is news for its goroutine

	// The store's mutex guards the rest.
	ticket  int64     // its place among waiters; 0 if it never waited
	joined  time.Time // when it began to wait
	token   int64     // not 0 while it holds
	since   time.Time // when it began to hold
	until   time.Time // when its lease ends
	pending bool      // granted, and its client has not confirmed that it knows
	grant   driver.Grant
}

// newClaim checks a request by what the engine promises, and gives it an owner.
func newClaim(client *client, req driver.Request, promises driver.Traits) (*claim, error) {
	if err := req.Check(promises); err != nil {
		return nil, err
	}
	owner := uuid.Must(uuid.NewV7()).String() // never fails
	return &claim{client: client, req: req, owner: owner, wake: newBell()}, nil
}

// granted reports whether the client has its grant.
func (c *claim) granted() bool { return c.grant.Token != 0 }

// event is what those who watch are told of the claim.
func (c *claim) event(kind driver.EventKind, at time.Time) driver.Event {
	return driver.Event{Identity: c.req.Identity, Kind: kind, Name: c.req.Name, Owner: c.owner, Token: c.token, Time: at}
}

// weight is how much of a limit the claim takes, for people to see.
func (c *claim) weight() int {
	if c.req.Limit == 0 {
		return 0
	}
	return c.req.Units()
}

// bell wakes one goroutine; ringing it again before it wakes changes nothing.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

// ring never blocks, so it may be called under the mutex.
func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}
