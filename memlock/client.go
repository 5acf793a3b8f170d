package memlock

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// client is the state of one client; the store's mutex guards it.
type client struct {
	frozen  chan struct{} // not nil while frozen; closed to thaw
	silent  bool          // let a grant lapse and was not heard of since
	refusal error         // what every call fails with
	killed  bool
	delay   time.Duration
	backlog []func() // callbacks that fell due while frozen
}

// do runs f with the store's mutex held, as one step of this client. It blocks
// while the client is frozen.
func (e *Engine) do(f func(now time.Time)) {
	s := e.store
	s.mu.Lock()
	for e.frozen != nil {
		thaw := e.frozen
		s.mu.Unlock()
		<-thaw
		s.mu.Lock()
	}
	now := time.Now()
	s.heard(e, now)
	f(now)
	s.unlock()
}

// call is do for one call of the engine: late, refused or not answered, when a
// switch says so.
func (e *Engine) call(ctx context.Context, f func(now time.Time) error) (err error) {
	var delay time.Duration
	e.do(func(time.Time) { delay = e.delay })
	if delay > 0 {
		t := time.NewTimer(delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	for {
		var hung chan struct{}
		e.do(func(now time.Time) {
			hung = e.store.hung
			switch {
			case e.refusal != nil:
				hung, err = nil, e.refusal
			case ctx.Err() != nil:
				hung, err = nil, fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, ctx.Err())
			case hung == nil:
				err = f(now)
			}
		})
		if hung == nil {
			return err
		}
		select {
		case <-hung:
		case <-ctx.Done():
		}
	}
}
