package pglock

import (
	"errors"
	"net"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// quiet is how long nobody must have read before the wire's own reader does.
const quiet = 2 * time.Millisecond

// read reads whenever nobody else does, until the connection ends.
func (w *wire) read() {
	for w.over() == nil {
		if w.used.Swap(false) {
			time.Sleep(quiet)
			continue
		}
		<-w.turn
		w.idle.Store(true)
		for w.receive(); w.idle.Load() && w.pending() && w.over() == nil; {
			w.receive()
		}
		w.idle.Store(false)
		w.used.Store(true)
		w.giveTurn()
	}
}

func (w *wire) giveTurn() { w.turn <- struct{}{} }

// interrupt makes whoever reads look up.
func (w *wire) interrupt() { _ = w.conn.SetReadDeadline(time.Unix(1, 0)) } // one that has ended interrupts by itself

// receive takes one message. The caller has the turn.
func (w *wire) receive() {
	msg, err := w.front.Receive()
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		err = w.conn.SetReadDeadline(time.Time{}) // what was read of a message stays read
		if err == nil {
			return
		}
	}
	if err != nil {
		w.kill(err)
		return
	}
	switch msg := msg.(type) {
	case *pgproto3.DataRow:
		w.row(copied(msg.Values))
	case *pgproto3.CommandComplete:
		w.step()
	case *pgproto3.ErrorResponse:
		w.fail(pgconn.ErrorResponseToPgError(msg))
	case *pgproto3.ReadyForQuery:
		w.done()
	case *pgproto3.NotificationResponse:
		w.hear(msg.Channel, msg.Payload)
	}
}

// pending reports whether an answer is to come.
func (w *wire) pending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls) > 0
}

// copied keeps a row whose memory the next message takes.
func copied(values [][]byte) row {
	r := make(row, len(values))
	for i, v := range values {
		if v != nil {
			r[i] = append([]byte{}, v...)
		}
	}
	return r
}

// row adds a row to the call that is being answered.
func (w *wire) row(r row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at < len(w.calls) {
		w.calls[w.at].rows = append(w.calls[w.at].rows, r)
	}
}

// step goes on to the next call of a transaction.
func (w *wire) step() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at < len(w.calls) && w.calls[w.at].stmt.eager() {
		w.calls[w.at].finish(nil)
	}
	w.at++
}

// fail notes an error of the server: of a call, or of the connection.
func (w *wire) fail(err *pgconn.PgError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err.Severity == "FATAL" || err.Severity == "PANIC" || err.SeverityUnlocalized == "FATAL" {
		w.end(err)
		return
	}
	if len(w.calls) == 0 {
		return
	}
	c := w.calls[min(w.at, w.calls[0].unit-1)] // the end of a transaction is part of its last call
	if !c.answered() {
		c.err = err
	}
}

// errAborted is of a statement whose transaction another one made fail: its rows
// are gone.
var errAborted = errors.New("another statement of the transaction failed")

// done ends the calls of a transaction, and begins the next one. Calls after one
// that failed were not run: they are sent again.
func (w *wire) done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.calls) == 0 {
		return
	}
	unit := w.calls[:w.calls[0].unit]
	failed := slices.IndexFunc(unit, func(c *call) bool { return c.err != nil })
	for i, c := range unit {
		switch {
		case failed < 0 || i < failed && c.stmt.lasts():
			c.finish(nil)
		case i < failed:
			c.finish(errAborted)
		case i == failed:
			w.forget(c)
			c.finish(nil)
		default:
			w.forget(c) // nor was it prepared
			w.waiting = append(w.waiting, c)
		}
	}
	clear(unit)
	w.calls, w.at = w.calls[len(unit):], 0
	if len(w.calls) == 0 && len(w.waiting) > 0 && w.cause == nil {
		n := min(len(w.waiting), maxGroup)
		w.put(w.waiting[:n]...)
		w.waiting = slices.Delete(w.waiting, 0, n)
		w.flush()
	}
}

// forget prepares a statement anew that failed, perhaps because it could not be
// prepared. One that was prepared is dropped first.
func (w *wire) forget(c *call) {
	if !w.known[c.stmt] {
		return
	}
	delete(w.known, c.stmt)
	w.front.Send(&pgproto3.Close{ObjectType: 'S', Name: c.stmt.name})
}
