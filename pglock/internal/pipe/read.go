package pipe

import (
	"errors"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// quiet is how long nobody must have read before the connection's own reader does.
const quiet = 2 * time.Millisecond

// read reads whenever nobody else does, until the connection ends.
func (w *Conn) read() {
	for w.Err() == nil {
		if w.used.Swap(false) {
			time.Sleep(quiet)
			continue
		}
		<-w.turn
		w.receive()
		w.giveTurn()
	}
}

func (w *Conn) giveTurn() { w.turn <- struct{}{} }

// interrupt makes whoever reads look up.
func (w *Conn) interrupt() { _ = w.conn.SetReadDeadline(time.Unix(1, 0)) } // one that has ended interrupts by itself

// lookUp makes the caller, who has the turn, look up at a time, or earlier: the time that was set
// stays for calls to come, since setting one for each would cost a third of a call. A context's
// own timer costs more, as it wakes a thread.
func (w *Conn) lookUp(at time.Time) {
	if w.looksUp.IsZero() || at.Before(w.looksUp) {
		w.looksUp = at
		_ = w.conn.SetReadDeadline(at) // one that has ended is noticed by who reads
	}
}

// receive takes one message. The caller has the turn.
func (w *Conn) receive() {
	msg, err := w.front.Receive()
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		w.looksUp = time.Time{}
		err = w.conn.SetReadDeadline(time.Time{}) // what was read of a message stays read
		if err == nil {
			return
		}
	}
	if err != nil {
		w.Kill(err)
		return
	}
	switch msg := msg.(type) {
	case *pgproto3.DataRow:
		w.row(copied(msg.Values))
	case *pgproto3.FunctionCallResponse:
		w.row(copied([][]byte{msg.Result}))
	case *pgproto3.ErrorResponse:
		w.fail(pgconn.ErrorResponseToPgError(msg))
	case *pgproto3.ReadyForQuery:
		w.answered()
	case *pgproto3.NotificationResponse:
		w.hear(msg.Payload)
	}
}

// copied keeps a row whose memory the next message takes.
func copied(values [][]byte) Row {
	r := make(Row, len(values))
	for i, v := range values {
		if v != nil {
			r[i] = append([]byte{}, v...)
		}
	}
	return r
}

// row adds a row to the call that is being answered.
func (w *Conn) row(r Row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.calls) > 0 {
		w.calls[0].rows = append(w.calls[0].rows, r)
	}
}

// readOnly is the SQLSTATE of a write that a server refuses, since it, or the role, may only read.
const readOnly = "25006"

// fail notes an error of the server: of a call, or of the connection. A server that takes no
// more writes has been put out of service, and what it goes on holding excludes nobody on the
// one that took over: the connection ends.
func (w *Conn) fail(err *pgconn.PgError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err.Severity == "FATAL" || err.Severity == "PANIC" || err.SeverityUnlocalized == "FATAL" || err.Code == readOnly {
		w.end(err)
		return
	}
	if len(w.calls) > 0 {
		w.calls[0].err = err
	}
}

// answered ends the oldest call: its transaction is over, and what it did lasts.
func (w *Conn) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.calls) == 0 {
		return
	}
	w.calls[0].finish(w.doubt)
	if !w.calls[0].urgent {
		w.common--
	}
	w.heard = time.Now()
	w.calls[0] = nil
	w.calls = w.calls[1:]
	if len(w.waiting) > 0 && !w.writing {
		go w.resume() // ends when what waits is sent, or the connection ends
	}
}

// resume sends what waits. Who reads must not: a server that is sending long answers takes
// nothing more until they are read.
func (w *Conn) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flush()
}
