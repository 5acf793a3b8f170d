package pglock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
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
	used    atomic.Bool   // somebody has read since the wire's own reader looked
	turn    chan struct{} // who takes it out reads, and puts it back

	mu      sync.Mutex // guards calls, at, waiting, known, cause and sending on front
	calls   []*call    // sent and not answered, oldest first
	at      int        // which of calls is being answered
	waiting []*call    // to be sent together when calls are answered
	known   map[*statement]bool
	cause   error // why the connection has ended; nil while it lives
}

// statement is prepared when a connection first uses it.
type statement struct{ name, sql string }

// groups reports whether a statement may share its transaction with others. At the
// end of each the server goes through all locks of the session, which takes
// milliseconds when there are ten thousand; so statements that come while others
// are under way wait for their answers and are then sent as one transaction.
func (s *statement) groups() bool {
	switch s {
	case stmtTry, stmtUnlock, stmtRelease, stmtReleased, stmtForgetLate:
		return true
	}
	return false
}

// maxGroup is how many statements share a transaction at most.
const maxGroup = 256

// call is one statement under way.
type call struct {
	wire *wire
	stmt *statement
	args [][]byte
	sent time.Time
	unit int           // how many calls, beginning with this one, share its transaction
	done chan struct{} // closed when it is answered; then rows and err are valid
	rows []row
	err  error
}

// row is what a statement returned: texts, nil for NULL.
type row [][]byte

// text returns a column, "" if it is NULL.
func (r row) text(i int) string { return string(r[i]) }

// int returns a column that is an integer, 0 if it is NULL.
func (r row) int(i int) int64 {
	n, _ := strconv.ParseInt(string(r[i]), 10, 64) // the server writes integers
	return n
}

// millis returns a column that is a number of milliseconds.
func (r row) millis(i int) time.Duration { return time.Duration(r.int(i)) * time.Millisecond }

// micros returns a column that is a time in microseconds, zero if it is NULL.
func (r row) micros(i int) time.Time {
	if r[i] == nil {
		return time.Time{}
	}
	return time.UnixMicro(r.int(i))
}

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
		w.front.SendBind(&pgproto3.Bind{PreparedStatement: c.stmt.name, Parameters: c.args})
		w.front.SendExecute(&pgproto3.Execute{})
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

// encode writes arguments as the server reads them in text form.
func encode(args []any) [][]byte {
	all := make([][]byte, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case int64:
			all[i] = strconv.AppendInt(nil, a, 10)
		case int:
			all[i] = strconv.AppendInt(nil, int64(a), 10)
		case int32:
			all[i] = strconv.AppendInt(nil, int64(a), 10)
		case bool:
			all[i] = strconv.AppendBool(nil, a)
		case string:
			all[i] = []byte(a)
		case []byte:
			all[i] = a
		case time.Duration:
			all[i] = strconv.AppendInt(nil, a.Milliseconds(), 10)
		}
	}
	return all
}

func (c *call) finish(err error) {
	if c.err == nil {
		c.err = err
	}
	close(c.done)
}

// wait returns the answer, or ctx.Err() when ctx ends before it has come; it then
// still comes to the call.
func (c *call) wait(ctx context.Context) ([]row, error) {
	select {
	case <-c.done:
		return c.rows, c.err
	default:
	}
	select {
	case <-c.done:
		return c.rows, c.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.wire.turn:
	}
	c.wire.used.Store(true)
	defer c.wire.giveTurn()
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, c.wire.interrupt)
		defer stop()
	}
	for !c.answered() && ctx.Err() == nil {
		c.wire.receive()
	}
	if c.answered() {
		return c.rows, c.err
	}
	return nil, ctx.Err()
}

// answered reports whether the answer has come.
func (c *call) answered() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// run sends a statement and waits for its answer.
func (w *wire) run(ctx context.Context, stmt *statement, args ...any) ([]row, error) {
	return w.send(stmt, args...).wait(ctx)
}

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
		for w.receive(); w.pending() && w.over() == nil; {
			w.receive()
		}
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
	if w.at < len(w.calls) {
		w.calls[w.at].err = err
	}
}

// errAborted is of a token whose transaction another statement made fail: it may
// come again after a crash of the server.
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
		case failed < 0 || i < failed && c.stmt != stmtTry:
			c.finish(nil)
		case i < failed:
			c.finish(errAborted)
		case i == failed:
			w.forget(c)
			c.finish(nil)
		default:
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
