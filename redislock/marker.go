package redislock

import (
	"context"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/retry"
)

const (
	extendEvery = 24 * time.Hour
	extendLimit = 2 * time.Second
)

// marker manages the key that records for which server the quarantine has passed.
type marker struct {
	*client
	extended retry.Period
}

// extend extends the life of the marker key to MarkerLife, once a day and in the background.
// Otherwise a job that runs once a month would find what looks like a new server.
func (m *marker) extend() {
	if !m.cfg.Quarantine || !m.extended.Due(extendEvery) {
		return
	}
	m.tasks.Go(func() { // ends when the server has answered, or with extendLimit
		ctx, cancel := context.WithTimeout(context.Background(), extendLimit)
		defer cancel()
		c := redisconn.Call{Script: extendMarkerScript, Keys: []string{m.markerKey()}, Args: []string{redisfmt.Millis(m.cfg.MarkerLife)}}
		if text, err := m.eval(ctx, c); err != nil || text != "ok" {
			m.extended.Again() // retried at the next grant or listing
		}
	})
}

// Init marks the server as new.
func (m *marker) Init(ctx context.Context) error {
	lasts := redisfmt.CeilMillis(m.cfg.quarantine())
	life := max(redisfmt.CeilMillis(m.cfg.MarkerLife), redisfmt.CeilMillis(m.cfg.Retention), 2*lasts)
	_, err := m.eval(ctx, redisconn.Call{
		Script: initScript,
		Keys:   []string{m.markerKey()},
		Args:   []string{strconv.FormatInt(lasts, 10), strconv.FormatInt(life, 10)},
	})
	return unavailable(err)
}
