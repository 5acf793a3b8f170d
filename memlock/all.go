package memlock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// AcquireAll makes one acquisition of each name or none, at once; see
// [driver.AllAcquirer].
func (e *Engine) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	claims := make([]*claim, len(reqs))
	for i, req := range reqs {
		c, err := e.claim(req)
		if err != nil {
			return nil, err
		}
		claims[i] = c
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	grants := make([]driver.Grant, len(reqs))
	err := e.call(ctx, func(now time.Time) error {
		if err := e.store.allFit(claims, now); err != nil {
			return err
		}
		for i, c := range claims {
			l := e.store.lock(c.req.Name, now)
			e.store.seat(l, c, now, c.req.TTL)
			e.store.confirm(l, c, now)
			e.store.settle(l, now)
			grants[i] = c.grant
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return grants, nil
}

// allFit reports what keeps one of the claims from being granted at once.
func (s *store) allFit(claims []*claim, now time.Time) error {
	for _, c := range claims {
		l := s.lock(c.req.Name, now)
		err := l.checkLimit(c.req)
		if err == nil && (l.head() != nil || !l.fits(c.req, now)) {
			err = l.inWay(c, now)
		}
		s.settle(l, now)
		if err != nil {
			return err
		}
	}
	return nil
}
