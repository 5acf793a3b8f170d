// Package pipe pipelines requests on one PostgreSQL connection. Each request is a transaction of
// its own: a function call, which is one message, or a query.
//
// A pgx connection serves one caller at a time. It closes the connection, and so ends every lock on
// it, when that caller's context ends, and detects a lost connection only at the next use.
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

// Conn is a connection that many goroutines may use at once. It is always being read, so a lost
// connection is detected immediately and every notification is received. A caller that waits for an
// answer reads for all callers, which saves a goroutine switch; when no caller waits, a goroutine
// of the connection reads.
type Conn struct {
	conn           net.Conn
	front          *pgproto3.Frontend
	server         *pgconn.PgConn       // where to send a cancel request
	onNotification func(payload string) // handles notifications
	dead           chan struct{}        // closed when the connection has ended
	silent         chan struct{}        // closed by MarkSilent

	reader  chan struct{} // a token; the goroutine that has taken it reads, and puts it back
	looksUp time.Time     // the read deadline, zero if none; guarded by reader
	used    atomic.Bool   // a caller has read since the connection's own reader last checked

	mu         sync.Mutex // guards all below; not held during I/O
	calls      []*Call    // sent and not answered, oldest first
	common     int        // how many of them are not urgent
	lastAnswer time.Time  // when the last answer arrived
	waiting    []*Call    // to be sent, oldest first
	writing    bool       // a goroutine is writing
	cancels    int        // cancel requests in progress
	doubt      error      // error of calls that are answered during a cancel request; nil without one
	cause      error      // why the connection has ended; nil while it lives
}

// maxInFlight is how many calls are sent before the first of them is answered. They fit into the
// socket's buffer, so that a server that does not read does not block the writer. Of the calls that
// are not urgent only maxCommon are sent: each may wait in the server for a table lock, and an
// urgent call sent behind them waits too.
const (
	maxInFlight = 64
	maxCommon   = 4
)

// ErrEnded is wrapped by the error of every call on a connection that has ended.
var ErrEnded = errors.New("the connection has ended")

// New takes over an idle connection. onNotification is called with the payload of each notification
// and must not block.
func New(c *pgconn.PgConn, onNotification func(payload string)) (*Conn, error) {
	h, err := c.Hijack()
	if err != nil {
		return nil, err
	}
	w := &Conn{conn: h.Conn, front: h.Frontend, server: c, onNotification: onNotification,
		dead: make(chan struct{}), silent: make(chan struct{}), reader: make(chan struct{}, 1)}
	w.reader <- struct{}{}
	go w.read() // ends with the connection
	return w, nil
}

// AllowWrites lets writes block until d from now. A write that blocks longer ends the connection.
// Setting a deadline for each write would cost more than the write.
func (w *Conn) AllowWrites(d time.Duration) { // a connection that has ended needs no deadline
	_ = w.conn.SetWriteDeadline(time.Now().Add(d)) // one that has ended needs none
}

// submit sends a call, or queues it until it can be sent.
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

// sendable returns how many of the queued calls may be sent now. w.mu is held.
func (w *Conn) sendable() int {
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

// flush sends queued calls, unless another goroutine does. w.mu is held, except while it writes.
func (w *Conn) flush() {
	for !w.writing && w.cause == nil {
		n := w.sendable()
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

// end ends the connection and all of its calls. w.mu is held.
func (w *Conn) end(cause error) {
	if w.cause != nil {
		return
	}
	w.cause = fmt.Errorf("%w: %w", ErrEnded, cause)
	_ = w.conn.Close() // the error does not matter any more
	for _, c := range slices.Concat(w.calls, w.waiting) {
		c.finish(w.cause)
	}
	w.calls, w.waiting = nil, nil
	close(w.dead)
}

// Kill closes the connection without a Terminate message.
func (w *Conn) Kill(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(cause)
}

// goodbye is how long Close may take to send Terminate.
const goodbye = 100 * time.Millisecond

// Close sends Terminate to the server, which releases every lock of the connection, and closes it.
func (w *Conn) Close(cause error) {
	w.mu.Lock()
	quiet := w.cause == nil && !w.writing
	w.writing = w.writing || quiet
	w.mu.Unlock()
	if quiet {
		if out, err := (&pgproto3.Terminate{}).Encode(nil); err == nil {
			w.AllowWrites(goodbye)
			_, _ = w.conn.Write(out) // if it fails, the server sees the connection close
		}
	}
	w.Kill(cause)
}

// ErrSilent is returned by [Call.ResultUnlessSilent] on a connection that is marked as silent.
var ErrSilent = errors.New("the server does not answer")

// MarkSilent makes every [Call.ResultUnlessSilent] return, from now on. The connection and its
// calls continue.
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

// Err returns why the connection has ended, or nil.
func (w *Conn) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}

// Oldest returns the call that the server is executing, nil if there is none. since is when it was
// sent, or when the one before it was answered.
func (w *Conn) Oldest() (*Call, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.calls) == 0 {
		return nil, time.Time{}
	}
	since := w.calls[0].sent
	if w.lastAnswer.After(since) {
		since = w.lastAnswer
	}
	return w.calls[0], since
}
