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

// outage reports from time to time that the server is unreachable. A waiting process may run for
// weeks, and without these reports an outage would go unnoticed.
type outage struct {
	app     *App
	reached *atomic.Bool // the server has answered

	mu   sync.Mutex // guards said
	said time.Time  // time of the last report; zero while the server answers
}

// The pauses between probes. A probe costs one request per waiting process.
const (
	firstLook  = time.Second
	lastLook   = 30 * time.Second
	repeatWord = 5 * time.Minute // interval of the reports of one outage
)

// note reports an error of the server: the first one at once, later ones every repeatWord.
func (o *outage) note(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.said.IsZero() || time.Since(o.said) > repeatWord {
		o.said = time.Now()
		o.app.Say("%v; retrying", err)
	}
}

// over records an answer of the server, which ends an outage.
func (o *outage) over() {
	o.reached.Store(true)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.said.IsZero() {
		o.said = time.Time{}
		o.app.Say("the server is reachable again")
	}
}

// probeEngine queries the server from time to time until ctx ends, since most engines wait through
// an outage without an error. It returns if the engine supports no such query.
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
