package pipe

import (
	"errors"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// quiet is how long no caller must have read before the connection's own goroutine reads.
const quiet = 2 * time.Millisecond

// read reads whenever no caller does, until the connection ends.
func (w *Conn) read() {
	for w.Err() == nil {
		if w.used.Swap(false) {
			time.Sleep(quiet)
			continue
		}
		<-w.reader
		w.receive()
		w.giveReader()
	}
}

func (w *Conn) giveReader() { w.reader <- struct{}{} }

// interrupt makes the goroutine that is reading check its conditions.
func (w *Conn) interrupt() { _ = w.conn.SetReadDeadline(time.Unix(1, 0)) } // fails only on a connection that has ended

// lookUp sets the time at which the reading caller checks its context. An earlier deadline stays,
// also for later calls, because setting one for each call would cost a third of the call. A
// context's own timer costs more, as it wakes a thread.
func (w *Conn) lookUp(at time.Time) {
	if w.looksUp.IsZero() || at.Before(w.looksUp) {
		w.looksUp = at
		_ = w.conn.SetReadDeadline(at) // one that has ended is noticed by who reads
	} // the read reports a connection that has ended
}

// receive reads and handles one message. The caller has taken reader.
func (w *Conn) receive() {
	msg, err := w.front.Receive()
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		w.looksUp = time.Time{}
		err = w.conn.SetReadDeadline(time.Time{}) // what was read of a message stays in the buffer
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
	case *pgproto3.NoticeResponse:
		if msg.Routine == StandbyWait {
			w.fail(pgconn.ErrorResponseToPgError((*pgproto3.ErrorResponse)(msg)))
		}
	case *pgproto3.ReadyForQuery:
		w.answered()
	case *pgproto3.NotificationResponse:
		w.onNotification(msg.Payload)
	}
}

// copied copies a row, whose memory is reused by the next message.
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

// readOnly is the SQLSTATE of a write that the server or the role does not allow.
const readOnly = "25006"

// fail handles an error of a call or of the connection. A server that refuses writes has been
// demoted, so its locks no longer exclude clients of the new primary: the connection ends.
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

// StandbyWait is the function of the server that waits for synchronous standbys. A notice from it says that
// somebody has cancelled the wait: the commit is on this server only, and a failover would lose it. The
// server reports success all the same.
const StandbyWait = "SyncRepWaitForLSN"

// answered ends the oldest call, whose transaction is over.
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
	w.lastAnswer = time.Now()
	w.calls[0] = nil
	w.calls = w.calls[1:]
	if len(w.waiting) > 0 && !w.writing {
		go w.resume() // ends when the queue is sent, or with the connection
	}
}

// resume sends queued calls. The reading goroutine must not do that: while the server sends long
// answers, it reads nothing.
func (w *Conn) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flush()
}
