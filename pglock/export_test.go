package pglock

import "time"

// HashText is hashText, for tests outside the package.
var HashText = hashText

// LockSessions returns how many TTLs the engine keeps a connection for.
func (e *Engine) LockSessions() int {
	e.acquirer.locks.mu.Lock()
	defer e.acquirer.locks.mu.Unlock()
	return len(e.acquirer.locks.byTTL)
}

// TryTxSQL is tryTxSQL, for tests outside the package.
var TryTxSQL = tryTxSQL

// TxGrace is txGrace, for tests outside the package.
const TxGrace = txGrace

// SweepEvery sets the time between two passes of the sweep.
func (e *Engine) SweepEvery(d time.Duration) {
	e.own.sweeper.every = d
	e.own.sweeper.nextIn(0)
}

// LookAtRowsEvery sets how long a wait ignores that the row of a vanished holder may be gone, unless
// it is notified.
func (e *Engine) LookAtRowsEvery(d time.Duration) { e.acquirer.rowLook = d }
