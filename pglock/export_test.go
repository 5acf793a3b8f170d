package pglock

import (
	"context"
	"time"
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

// LockSessions returns how many TTLs the engine keeps a connection for.
func (e *Engine) LockSessions() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.locks)
}

// ErrAborted is errAborted, for tests outside the package.
var ErrAborted = errAborted
