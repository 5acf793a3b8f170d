//go:build unix

package cli

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// outage tells people, now and then, that an engine does not answer. A standby may wait
// for weeks, and nobody would see that it waits in vain.
type outage struct {
	app     *app
	reached *atomic.Bool // the engine has answered

	mu   sync.Mutex // guards said
	said time.Time  // when it was spoken of last; zero while the engine answers
}

// A look costs the engine one request of each standby.
const (
	firstLook  = time.Second
	lastLook   = 30 * time.Second
	repeatWord = 5 * time.Minute // how often one outage is spoken of
)

// note is an error of the engine: told at first, and then rarely.
func (o *outage) note(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.said.IsZero() || time.Since(o.said) > repeatWord {
		o.said = time.Now()
		o.app.say("%v; retrying", err)
	}
}

// over is an answer of the engine, which ends an outage.
func (o *outage) over() {
	o.reached.Store(true)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.said.IsZero() {
		o.said = time.Time{}
		o.app.say("the server is reachable again")
	}
}

// probeEngine asks the engine something from time to time, until ctx ends: most engines
// ride out an outage in silence while a request waits. One that cannot be asked is left
// alone.
func (o *outage) probeEngine(ctx context.Context, locker *fencelock.Locker, name string) {
	for pause := retry.NewBackoff(firstLook, lastLook); ; {
		pause.Wait(ctx)
		_, err := locker.Status(ctx, name)
		switch {
		case ctx.Err() != nil || errors.Is(err, driver.ErrUnsupported):
			return
		case err != nil:
			o.note(err)
		default:
			o.over()
		}
	}
}
