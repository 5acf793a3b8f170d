package pglock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// HashText is hashText, for tests outside the package.
var HashText = hashText

// Grouped sends three statements as one transaction on a new connection: a try, a
// try that fails, and the connection's first unlock. It returns their errors.
func (e *Engine) Grouped(ctx context.Context, key int64) (errs [3]error, err error) {
	s, err := e.dial(ctx, 10*time.Second)
	if err != nil {
		return errs, err
	}
	defer s.retire(errSpare)
	s.send(&statement{"pause", "SELECT pg_sleep(0.1)"})
	calls := []*call{s.send(stmtTry, key, 0), s.send(stmtTry, "no number", 0), s.send(stmtUnlock, key)}
	for i, c := range calls {
		_, errs[i] = c.wait(ctx)
	}
	return errs, nil
}

// MarkOfKey is markOfKey, for tests outside the package.
var MarkOfKey = markOfKey

// LockSessions returns how many TTLs the engine keeps a connection for.
func (e *Engine) LockSessions() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.locks)
}

// ErrAborted is errAborted, for tests outside the package.
var ErrAborted = errAborted

// HearBreak lets the engine hear of a break, and nobody else, and returns when it
// has.
func (e *Engine) HearBreak(name string, token int64) { e.broken(keyOf(name), token, "a test") }

// Sleep keeps the server process of a hold at work until wake is called.
func (e *Engine) Sleep(l driver.Lease) (wake func(context.Context) error) {
	e.mu.Lock()
	s := e.find(l).session
	e.mu.Unlock()
	c := s.send(&statement{"sleep", "SELECT pg_sleep(60)"})
	return func(ctx context.Context) error {
		if err := s.server.CancelRequest(ctx); err != nil {
			return err
		}
		_, _ = c.wait(ctx) // it was cancelled
		return ctx.Err()
	}
}
