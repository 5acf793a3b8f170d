package redislock

import (
	"context"
	"sync"
	"time"
)

const (
	remarkEvery = 24 * time.Hour
	remarkLimit = 2 * time.Second
)

// marked is when the marker was last made to stay.
type marked struct {
	mu sync.Mutex // guards at
	at time.Time
}

// due reports whether a day has passed. The caller makes the marker stay then.
func (m *marked) due(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.at.IsZero() && now.Sub(m.at) < remarkEvery {
		return false
	}
	m.at = now
	return true
}

// again makes the marker due once more.
func (m *marked) again() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = time.Time{}
}

// remark makes the marker of the quarantine stay for MarkerLife, once a day and in the
// background: a job that runs once a month must not find what looks like a new server.
func (e *Engine) remark() {
	if !e.cfg.Quarantine || !e.marked.due(time.Now()) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spawn(func() { // ends when the server has answered, or with remarkLimit
		ctx, cancel := context.WithTimeout(context.Background(), remarkLimit)
		defer cancel()
		c := Call{Script: remarkScript, Keys: []string{e.marker()}, Args: []string{millis(e.cfg.MarkerLife)}}
		if text, err := e.eval(ctx, c); err != nil || text != "ok" {
			e.marked.again() // the next grant or listing tries
		}
	})
}
