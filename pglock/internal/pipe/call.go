package pipe

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/deadline"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// Func is a function of the server, by its object id.
type Func uint32

// Call is one request under way.
type Call struct {
	// Patience is how long the server may take besides what answers take anyway,
	// since the call waits for something there.
	Patience time.Duration

	conn   *Conn
	urgent bool // it goes before what waits to be sent
	fn     Func
	sql    string // if fn is 0
	args   []any
	sent   time.Time     // guarded by Conn.mu until done
	done   chan struct{} // closed when it is answered; then rows and err are valid
	rows   []Row
	err    error
}

// Row is what a query returned: texts, nil for NULL. A function returns one row with the
// parts of its result between "|".
type Row [][]byte

// Text returns a column, "" if it is NULL or missing.
func (r Row) Text(i int) string {
	if i >= len(r) {
		return ""
	}
	return string(r[i])
}

// Int returns a column that is an integer, 0 if it is NULL or missing.
func (r Row) Int(i int) int64 {
	n, _ := strconv.ParseInt(r.Text(i), 10, 64) // the server writes integers
	return n
}

// Millis returns a column that is a number of milliseconds, or the longest duration if it is more.
func (r Row) Millis(i int) time.Duration {
	return time.Duration(min(r.Int(i), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// Micros returns a column that is a time in microseconds since 1970, zero if it is NULL.
func (r Row) Micros(i int) time.Time {
	if i >= len(r) || r[i] == nil {
		return time.Time{}
	}
	return time.UnixMicro(r.Int(i))
}

// Call sends a function call. Arguments are int64, int32, bool, string and
// time.Duration (milliseconds, as a bigint).
func (w *Conn) Call(fn Func, args ...any) *Call {
	return w.submit(&Call{conn: w, fn: fn, args: args, done: make(chan struct{})})
}

// CallPatiently is Call for a function that waits in the server for so long.
func (w *Conn) CallPatiently(patience time.Duration, fn Func, args ...any) *Call {
	return w.submit(&Call{conn: w, Patience: patience, fn: fn, args: args, done: make(chan struct{})})
}

// CallFirst is Call for what must not wait behind others: it is sent before all that wait to
// be sent, of which few are under way at a time.
func (w *Conn) CallFirst(fn Func, args ...any) *Call {
	return w.submit(&Call{conn: w, urgent: true, fn: fn, args: args, done: make(chan struct{})})
}

// Query sends a query with its arguments, nil for NULL.
func (w *Conn) Query(sql string, args ...any) *Call {
	return w.submit(&Call{conn: w, sql: sql, args: args, done: make(chan struct{})})
}

// encode appends the messages of a call.
func (c *Call) encode(out []byte) ([]byte, error) {
	if c.fn != 0 {
		call := pgproto3.FunctionCall{Function: uint32(c.fn), ArgFormatCodes: []uint16{pgtype.BinaryFormatCode},
			Arguments: make([][]byte, len(c.args)), ResultFormatCode: pgtype.TextFormatCode}
		for i, a := range c.args {
			call.Arguments[i] = binaryForm(a)
		}
		return call.Encode(out)
	}
	bind := pgproto3.Bind{Parameters: make([][]byte, len(c.args))}
	for i, a := range c.args {
		bind.Parameters[i] = textForm(a)
	}
	for _, m := range []pgproto3.FrontendMessage{&pgproto3.Parse{Query: c.sql}, &bind, &pgproto3.Execute{}, &pgproto3.Sync{}} {
		var err error
		if out, err = m.Encode(out); err != nil {
			return out, err
		}
	}
	return out, nil
}

func binaryForm(a any) []byte {
	switch a := a.(type) {
	case int64:
		return binary.BigEndian.AppendUint64(nil, uint64(a))
	case time.Duration:
		return binary.BigEndian.AppendUint64(nil, uint64(a.Milliseconds()))
	case int32:
		return binary.BigEndian.AppendUint32(nil, uint32(a))
	case bool:
		if a {
			return []byte{1}
		}
		return []byte{0}
	case string:
		return []byte(a)
	}
	panic(fmt.Sprintf("pipe: an argument of type %T", a))
}

func textForm(a any) []byte {
	switch a := a.(type) {
	case nil:
		return nil
	case time.Duration:
		return strconv.AppendInt(nil, a.Milliseconds(), 10)
	case string:
		return []byte(a)
	}
	return fmt.Append(nil, a)
}

// finish ends a call; Conn.mu is held.
func (c *Call) finish(err error) {
	if c.err == nil {
		c.err = err
	}
	close(c.done)
}

// Sent returns when the call was sent. It is for calls that are answered.
func (c *Call) Sent() time.Time {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	return c.sent
}

// Answered reports whether the answer has come.
func (c *Call) Answered() bool { return isClosed(c.done) }

// Wait returns the rows of a query, or ctx.Err() when ctx ends before they have come;
// they then still come to the call.
func (c *Call) Wait(ctx context.Context) ([]Row, error) { return c.wait(ctx, nil) }

// wait is Wait that returns ErrSilent as soon as silent is closed, which may be nil.
func (c *Call) wait(ctx context.Context, silent <-chan struct{}) ([]Row, error) {
	w := c.conn
	if c.Answered() {
		return c.rows, c.err
	}
	select { // asking for Done may cost ctx a timer
	case <-w.turn:
	default:
		select {
		case <-c.done:
			return c.rows, c.err
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-silent:
			return nil, ErrSilent
		case <-w.turn:
		}
	}
	w.used.Store(true)
	defer w.giveTurn()
	end, timed := onlyTimed(ctx)
	if !timed && ctx.Done() != nil {
		stop := context.AfterFunc(ctx, w.interrupt)
		defer stop()
	}
	for !c.Answered() && ctx.Err() == nil {
		if timed {
			w.lookUp(end)
		}
		if isClosed(silent) { // after lookUp, which may have put off the interrupt of MarkSilent
			break
		}
		w.receive()
	}
	switch {
	case c.Answered():
		return c.rows, c.err
	case ctx.Err() == nil:
		return nil, ErrSilent
	}
	return nil, ctx.Err()
}

// onlyTimed returns the deadline of a context that ends by nothing else, and knows that without
// a timer.
func onlyTimed(ctx context.Context) (end time.Time, ok bool) {
	beneath := deadline.Beneath(ctx)
	if beneath == ctx || beneath.Done() != nil {
		return time.Time{}, false
	}
	return ctx.Deadline()
}

// Result waits for the result of a function.
func (c *Call) Result(ctx context.Context) (Row, error) { return result(c.Wait(ctx)) }

// ResultUnlessSilent is Result that returns ErrSilent when the connection is marked as silent
// before the answer has come, which then still comes to the call.
func (c *Call) ResultUnlessSilent(ctx context.Context) (Row, error) {
	return result(c.wait(ctx, c.conn.silent))
}

// result reads the result of a function.
func result(rows []Row, err error) (Row, error) {
	if err != nil {
		return nil, err
	}
	var r Row
	if len(rows) == 1 && rows[0][0] != nil {
		for s := range strings.SplitSeq(rows[0].Text(0), "|") {
			r = append(r, []byte(s))
		}
	}
	return r, nil
}

// Cancel asks the server to end what the connection is at, and waits until the call is
// answered, or ctx ends. It is for connections on which nothing else is under way.
func (c *Call) Cancel(ctx context.Context) {
	for !c.Answered() && ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, cancelPause)
		_ = c.conn.server.CancelRequest(try) // it may come before the call, or get lost
		_, _ = c.Wait(try)
		cancel()
	}
}

// cancelPause is how long a cancelled call has to end before it is cancelled again.
const cancelPause = 200 * time.Millisecond

// RequestCancel asks the server to end what the connection is at, and returns when the
// server has sent its own process the signal. The signal hits whatever call that process
// is at by then, and a commit that waits for a standby takes it for a success. So doubt,
// if it is not nil, is what comes of each call that was under way meanwhile, where the
// server has no error of its own.
func (w *Conn) RequestCancel(ctx context.Context, doubt error) error {
	w.doubtCalls(doubt, 1)
	err := w.server.CancelRequest(ctx)
	w.doubtCalls(doubt, -1)
	return err
}

// doubtCalls begins and ends, with 1 and -1, the time in which a cancel may hit any call.
// Those that are under way at its end may have been hit before.
func (w *Conn) doubtCalls(doubt error, more int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancels += more
	switch {
	case w.cancels == 0:
		w.doubt = nil
	case doubt != nil:
		w.doubt = doubt
	}
	for _, c := range w.calls {
		if c.err == nil {
			c.err = doubt
		}
	}
}
