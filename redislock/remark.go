package redislock

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

const (
	remarkEvery = 24 * time.Hour
	remarkLimit = 2 * time.Second
)

// marker is the key that says which server the quarantine has waited for, and when it
// was last made to stay.
type marker struct {
	*client

	mu sync.Mutex // guards at
	at time.Time
}

// due reports whether a day has passed. The caller makes the marker stay then.
func (m *marker) due(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.at.IsZero() && now.Sub(m.at) < remarkEvery {
		return false
	}
	m.at = now
	return true
}

// again makes the marker due once more.
func (m *marker) again() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = time.Time{}
}

// remark makes the marker of the quarantine stay for MarkerLife, once a day and in the
// background: a job that runs once a month must not find what looks like a new server.
func (m *marker) remark() {
	if !m.cfg.Quarantine || !m.due(time.Now()) {
		return
	}
	m.tasks.Go(func() { // ends when the server has answered, or with remarkLimit
		ctx, cancel := context.WithTimeout(context.Background(), remarkLimit)
		defer cancel()
		c := redisconn.Call{Script: remarkScript, Keys: []string{m.markerKey()}, Args: []string{redisfmt.Millis(m.cfg.MarkerLife)}}
		if text, err := m.eval(ctx, c); err != nil || text != "ok" {
			m.again() // the next grant or listing tries
		}
	})
}

// Init declares a server new.
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
