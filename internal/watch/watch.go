// Package watch reports changes of locks on engines that can list locks but do not push events: it
// compares one listing with the next.
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
	patience = 30 * time.Second // how long the engine may be out of reach
)

// Poll is [driver.Watcher.Watch] for an engine that is only a lister. It lists
// the names q chooses about once every interval, less often when a listing takes
// long, and tells fn what changed, names in order, from the calling goroutine.
// It starts with what stands, and returns when ctx ends, when fn returns an
// error, or when the engine cannot list: at the first look at once, later on
// after it has been unavailable for 30 s.
//
// What begins and ends between two looks is not told. A holder that is gone is
// lost if its lease would have run out since the last look, and released
// otherwise, so one that was broken counts as released. A waiter that is gone
// has left, unless it holds.
func Poll(ctx context.Context, lister driver.Lister, q driver.Query, every time.Duration, fn func(driver.Event) error) error {
	p := poller{lister: lister, query: q, fn: fn}
	for {
		listing, err := p.look(ctx)
		if err != nil {
			return err
		}
		if !retry.Sleep(ctx, max(every, share*listing)) {
			return ctx.Err()
		}
	}
}

// poller is one Poll and what it saw last.
type poller struct {
	lister driver.Lister
	query  driver.Query
	fn     func(driver.Event) error

	last   []driver.Status
	looked time.Time // when last was taken; zero before the first look
	failed time.Time // when the engine was first found unavailable since; zero if it was not
}

// look lists once and tells the changes. It returns how long the listing took: how long fn
// takes is its own affair, and no reason to look less often.
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
	for _, ev := range changes(p.last, list, now.Sub(p.looked), now) {
		if err := p.fn(ev); err != nil {
			return listing, err
		}
	}
	p.last, p.looked = list, asked
	return listing, nil
}
