package pglock

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// wire is a connection that many goroutines send statements on without waiting
// for one another: a pipeline in which each statement is a transaction of its
// own. Somebody always reads, so it learns at once when the server ends the
// connection, and hears every notification: whoever waits for an answer reads for
// all, which spares the answer a change of goroutines, and when nobody does, a
// goroutine of the wire's own.
//
// A driver's own connection serves one caller at a time, drops the connection,
// and every lock on it, when that caller's context ends, and notices its end at
// the next use.
type wire struct {
	conn   net.Conn
	front  *pgproto3.Frontend
	server *pgconn.PgConn                // where to send a cancel request
	hear   func(channel, payload string) // called by the reader: must not block
	dead   chan struct{}                 // closed when the connection has ended

	senders atomic.Int32  // how many are in send
	idle    atomic.Bool   // the wire's own reader reads, and nobody wants the turn
	used    atomic.Bool   // somebody has read since the wire's own reader looked
	turn    chan struct{} // who takes it out reads, and puts it back

	mu      sync.Mutex // guards calls, at, waiting, known, cause and sending on front
	calls   []*call    // sent and not answered, oldest first
	at      int        // which of calls is being answered
	waiting []*call    // to be sent together when calls are answered
	known   map[*statement]bool
	cause   error // why the connection has ended; nil while it lives
}

// maxGroup is how many statements share a transaction at most.
const maxGroup = 256

// errSilent is why a connection is closed whose server does not answer.
var errSilent = errors.New("the server does not answer")

// newWire takes over a connection that is idle.
func newWire(c *pgconn.PgConn, hear func(channel, payload string)) (*wire, error) {
	h, err := c.Hijack()
	if err != nil {
		return nil, err
	}
	w := &wire{conn: h.Conn, front: h.Frontend, server: c, hear: hear, dead: make(chan struct{}),
		known: map[*statement]bool{}, turn: make(chan struct{}, 1)}
	w.turn <- struct{}{}
	return w, nil
}

// allow lets writes that block go on for d; those that block longer end the
// connection. A deadline for each write would cost more than the write.
func (w *wire) allow(d time.Duration) error { return w.conn.SetWriteDeadline(time.Now().Add(d)) }

// send sends one statement with its arguments, nil for NULL. The answer comes to
// the call.
func (w *wire) send(stmt *statement, args ...any) *call {
	c := &call{wire: w, stmt: stmt, args: encode(args), done: make(chan struct{})}
	w.senders.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.senders.Add(-1) == 0
	switch {
	case w.cause != nil:
		c.finish(w.cause)
		return c
	case stmt.groups() && len(w.calls) > 0:
		w.waiting = append(w.waiting, c)
	default:
		w.put(c)
	}
	if last { // otherwise whoever has the mutex next sends it all
		w.flush()
	}
	return c
}

// put writes calls that share a transaction to the connection's buffer; w.mu is
// held.
func (w *wire) put(unit ...*call) {
	unit[0].unit = len(unit)
	now := time.Now()
	for _, c := range unit {
		if !w.known[c.stmt] {
			w.front.SendParse(&pgproto3.Parse{Name: c.stmt.name, Query: c.stmt.sql})
			w.known[c.stmt] = true
		}
		bind := pgproto3.Bind{PreparedStatement: c.stmt.name, Parameters: c.args}
		if c.stmt.eager() {
			bind.ResultFormatCodes = []int16{pgtype.BinaryFormatCode}
		}
		w.front.SendBind(&bind)
		w.front.SendExecute(&pgproto3.Execute{})
		if c.stmt.eager() {
			w.front.Send(&pgproto3.Flush{})
		}
		c.sent = now
	}
	w.front.SendSync(&pgproto3.Sync{})
	w.calls = append(w.calls, unit...)
}

// flush sends what is in the buffer; w.mu is held.
func (w *wire) flush() {
	if err := w.front.Flush(); err != nil {
		w.end(err)
	}
}

// end ends the connection and everything that waits for an answer. w.mu is held.
func (w *wire) end(cause error) {
	if w.cause != nil {
		return
	}
	w.cause = fmt.Errorf("the connection has ended: %w", cause)
	_ = w.conn.Close() // nothing more is said on it
	for _, c := range slices.Concat(w.calls, w.waiting) {
		c.finish(w.cause)
	}
	w.calls, w.waiting = nil, nil
	close(w.dead)
}

// kill ends the connection.
func (w *wire) kill(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(cause)
}

// close tells the server goodbye, which frees every lock of the connection.
func (w *wire) close(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause == nil {
		w.front.Send(&pgproto3.Terminate{})
		_ = w.front.Flush() // the end of the connection says the same
	}
	w.end(cause)
}

// over returns why the connection has ended, nil while it lives.
func (w *wire) over() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}

// silent is how long the oldest statement has waited for an answer.
func (w *wire) silent(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.calls) == 0 {
		return 0
	}
	return now.Sub(w.calls[0].sent)
}
