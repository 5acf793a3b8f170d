// Package pipe sends many requests on one connection to PostgreSQL without waiting for one another.
// Each request is a transaction of its own: a function call, which is one message, or a query.
//
// A driver's own connection serves one caller at a time. It closes the connection, and with it
// every lock, when that caller's context ends, and notices the end of the connection only at its
// next use.
package pipe

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
)

// Conn is a connection. Somebody always reads, so it learns at once when the server
// ends it, and hears every notification: whoever waits for an answer reads for all,
// which spares the answer a change of goroutines, and when nobody does, a goroutine of
// its own. All methods may be called from many goroutines at once.
type Conn struct {
	conn   net.Conn
	front  *pgproto3.Frontend
	server *pgconn.PgConn // where to send a cancel request
	hear   func(payload string)
	dead   chan struct{} // closed when the connection has ended
	silent chan struct{} // closed by MarkSilent

	turn    chan struct{} // who takes it out reads, and puts it back
	looksUp time.Time     // when who reads looks up, zero if never; guarded by turn
	used    atomic.Bool   // somebody has read since the connection's own reader looked

	mu      sync.Mutex // guards all below; never held while something is read or written
	calls   []*Call    // sent and not answered, oldest first
	common  int        // how many of them are not urgent
	heard   time.Time  // when the last answer came
	waiting []*Call    // to be sent, oldest first
	writing bool       // somebody sends
	cancels int        // requests to cancel that are under way
	doubt   error      // what comes of calls that are answered meanwhile; nil without any
	cause   error      // why the connection has ended; nil while it lives
}

// maxInFlight is how many calls are sent before the first of them is answered. What they
// take fits into the socket's buffer, so that nobody is stopped by a server that reads
// nothing. Of those that are not urgent there are few: each may wait in the server for
// somebody's lock on a table, and an urgent one that is sent then waits for all of them.
const (
	maxInFlight = 64
	maxCommon   = 4
)

// ErrEnded is in the error of every call on a connection that has ended.
var ErrEnded = errors.New("the connection has ended")

// New takes over a connection that is idle. hear is called with the payload of each
// notification and must not block.
func New(c *pgconn.PgConn, hear func(payload string)) (*Conn, error) {
	h, err := c.Hijack()
	if err != nil {
		return nil, err
	}
	w := &Conn{conn: h.Conn, front: h.Frontend, server: c, hear: hear,
		dead: make(chan struct{}), silent: make(chan struct{}), turn: make(chan struct{}, 1)}
	w.turn <- struct{}{}
	go w.read() // ends with the connection
	return w, nil
}

// AllowWrites lets writes that block go on for d from now; those that block longer end the
// connection. A deadline for each write would cost more than the write.
func (w *Conn) AllowWrites(d time.Duration) {
	_ = w.conn.SetWriteDeadline(time.Now().Add(d)) // one that has ended needs none
}

// submit sends a call, or has it sent when there is room.
func (w *Conn) submit(c *Call) *Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause != nil {
		c.finish(w.cause)
		return c
	}
	at := len(w.waiting)
	for c.urgent && at > 0 && !w.waiting[at-1].urgent {
		at--
	}
	w.waiting = slices.Insert(w.waiting, at, c)
	w.flush()
	return c
}

// room returns how many of the calls that wait may be sent now. w.mu is held.
func (w *Conn) room() int {
	common := w.common
	for n, c := range w.waiting {
		if !c.urgent {
			common++
		}
		if len(w.calls)+n >= maxInFlight || common > maxCommon {
			return n
		}
	}
	return len(w.waiting)
}

// flush sends what waits, unless somebody else does; w.mu is held, but not while it
// writes.
func (w *Conn) flush() {
	for !w.writing && w.cause == nil {
		n := w.room()
		if n == 0 {
			return
		}
		var out []byte
		var err error
		now := time.Now()
		for _, c := range w.waiting[:n] {
			if err == nil {
				out, err = c.encode(out)
			}
			c.sent = now
			if !c.urgent {
				w.common++
			}
		}
		w.calls = append(w.calls, w.waiting[:n]...)
		w.waiting = slices.Delete(w.waiting, 0, n)
		w.writing = true
		w.mu.Unlock()
		if err == nil {
			_, err = w.conn.Write(out)
		}
		w.mu.Lock()
		w.writing = false
		if err != nil {
			w.end(err)
		}
	}
}

// end ends the connection and everything that waits for an answer. w.mu is held.
func (w *Conn) end(cause error) {
	if w.cause != nil {
		return
	}
	w.cause = fmt.Errorf("%w: %w", ErrEnded, cause)
	_ = w.conn.Close() // nothing more is said on it
	for _, c := range slices.Concat(w.calls, w.waiting) {
		c.finish(w.cause)
	}
	w.calls, w.waiting = nil, nil
	close(w.dead)
}

// Kill ends the connection without a word.
func (w *Conn) Kill(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(cause)
}

// goodbye is how long Close may take to say goodbye.
const goodbye = 100 * time.Millisecond

// Close says goodbye to the server, which frees every lock of the connection.
func (w *Conn) Close(cause error) {
	w.mu.Lock()
	quiet := w.cause == nil && !w.writing
	w.writing = w.writing || quiet
	w.mu.Unlock()
	if quiet {
		if out, err := (&pgproto3.Terminate{}).Encode(nil); err == nil {
			w.AllowWrites(goodbye)
			_, _ = w.conn.Write(out) // the end of the connection says the same
		}
	}
	w.Kill(cause)
}

// ErrSilent is what comes of [Call.ResultUnlessSilent] on a connection that is silent.
var ErrSilent = errors.New("the server does not answer")

// MarkSilent ends every [Call.ResultUnlessSilent], now and later. The connection and its
// calls go on.
func (w *Conn) MarkSilent() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !isClosed(w.silent) {
		close(w.silent)
		w.interrupt()
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Dead is closed when the connection has ended.
func (w *Conn) Dead() <-chan struct{} { return w.dead }

// Err returns why the connection has ended, nil while it lives.
func (w *Conn) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}

// Oldest returns the call that the server is at, nil if there is none, and since when: it was
// sent, or the one before it was answered.
func (w *Conn) Oldest() (*Call, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.calls) == 0 {
		return nil, time.Time{}
	}
	since := w.calls[0].sent
	if w.heard.After(since) {
		since = w.heard
	}
	return w.calls[0], since
}
