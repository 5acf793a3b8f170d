// Package watch follows locks by listing them again and again. It says how often that may be, and
// which events lie between two listings.
package watch

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

const (
	share    = 10               // a watch spends at most 1/share of its time listing
	patience = 30 * time.Second // how long the engine may be unreachable
)

// Pause returns the time to wait after a listing, so that the next one starts after the interval
// every, and so that listing takes at most a tenth of the time.
func Pause(every, listing time.Duration) time.Duration {
	return max(every, (share-1)*listing)
}

// Poll implements [driver.Watcher.Watch] for an engine that is only a lister. It lists the names
// that q matches about once per interval, or less often if a listing takes long. It calls fn with
// the changes, ordered by name, from the calling goroutine, and starts with the current holders and
// waiters. It returns when ctx ends, when fn returns an error, or when the engine cannot list: for
// the first listing at once, later after the engine was unavailable for 30 s.
//
// What begins and ends between two listings is not reported. A holder that is gone is reported as
// lost if its lease would have expired since the last listing, and as released otherwise, even if
// it was broken. A waiter that is gone has left, unless it now holds.
func Poll(ctx context.Context, lister driver.Lister, q driver.Query, every time.Duration, fn func(driver.Event) error) error {
	p := poller{lister: lister, query: q, fn: fn}
	for {
		listing, err := p.look(ctx)
		if err != nil {
			return err
		}
		if !retry.Sleep(ctx, Pause(every, listing)) {
			return ctx.Err()
		}
	}
}

// poller is the state of one Poll.
type poller struct {
	lister driver.Lister
	query  driver.Query
	fn     func(driver.Event) error

	last   []driver.Status
	looked time.Time // when last was listed; zero before the first listing
	failed time.Time // when the engine became unavailable; zero if it is available
}

// look lists once and reports the changes. It returns the duration of the listing without that of
// fn, since a slow fn is no reason to list less often.
func (p *poller) look(ctx context.Context) (listing time.Duration, err error) {
	asked := time.Now()
	list, err := p.lister.List(ctx, p.query)
	now := time.Now()
	listing = now.Sub(asked)
	switch {
	case ctx.Err() != nil:
		return listing, ctx.Err()
	case errors.Is(err, driver.ErrUnavailable) && !p.looked.IsZero():
		if p.failed.IsZero() {
			p.failed = asked
		}
		if asked.Sub(p.failed) < patience {
			return listing, nil
		}
		return listing, err
	case err != nil:
		return listing, err
	}
	p.failed = time.Time{}
	for _, ev := range Changes(p.last, list, now.Sub(p.looked), now) {
		if err := p.fn(ev); err != nil {
			return listing, err
		}
	}
	p.last, p.looked = list, asked
	return listing, nil
}
