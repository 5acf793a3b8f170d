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

// Call is one request.
type Call struct {
	// Patience is how long the server may take in addition to the usual time, because the function
	// waits.
	Patience time.Duration

	conn   *Conn
	urgent bool // it is sent before other calls that wait to be sent
	fn     Func
	sql    string // if fn is 0
	args   []any
	sent   time.Time     // guarded by Conn.mu until done is closed
	done   chan struct{} // closed when it is answered; then rows and err are valid
	rows   []Row
	err    error
}

// Row is a row of a result, as texts; nil is NULL. A function returns one row, which is its result
// split at "|".
type Row [][]byte

// Text returns a column, "" if it is NULL or missing.
func (r Row) Text(i int) string {
	if i >= len(r) {
		return ""
	}
	return string(r[i])
}

// Int returns an integer column, 0 if it is NULL or missing.
func (r Row) Int(i int) int64 {
	n, _ := strconv.ParseInt(r.Text(i), 10, 64) // the server writes integers
	return n
}

// Millis returns a column with a number of milliseconds, limited to the longest duration.
func (r Row) Millis(i int) time.Duration {
	return time.Duration(min(r.Int(i), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// Micros returns a column with a time in microseconds since 1970, the zero time if it is NULL.
func (r Row) Micros(i int) time.Time {
	if i >= len(r) || r[i] == nil {
		return time.Time{}
	}
	return time.UnixMicro(r.Int(i))
}

// Call sends a function call. Arguments may be int64, int32, bool, string and time.Duration (sent
// as a bigint, in milliseconds).
func (w *Conn) Call(fn Func, args ...any) *Call {
	return w.submit(&Call{conn: w, fn: fn, args: args, done: make(chan struct{})})
}

// CallPatiently is Call for a function that waits in the server for up to patience.
func (w *Conn) CallPatiently(patience time.Duration, fn Func, args ...any) *Call {
	return w.submit(&Call{conn: w, Patience: patience, fn: fn, args: args, done: make(chan struct{})})
}

// CallFirst is Call for urgent functions. The call is sent before all others that wait to be sent,
// of which few are in flight at a time.
func (w *Conn) CallFirst(fn Func, args ...any) *Call {
	return w.submit(&Call{conn: w, urgent: true, fn: fn, args: args, done: make(chan struct{})})
}

// Query sends a query with its arguments; nil is NULL.
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

// finish ends a call. Conn.mu is held.
func (c *Call) finish(err error) {
	if c.err == nil {
		c.err = err
	}
	close(c.done)
}

// Sent returns when the call was sent. It must have been answered.
func (c *Call) Sent() time.Time {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	return c.sent
}

// Answered reports whether the call was answered.
func (c *Call) Answered() bool { return isClosed(c.done) }

// Wait returns the rows of a query, or ctx.Err() if ctx ends first. The call then continues and may
// be waited for again.
func (c *Call) Wait(ctx context.Context) ([]Row, error) { return c.wait(ctx, nil) }

// wait is Wait, but returns ErrSilent when silent is closed. silent may be nil.
func (c *Call) wait(ctx context.Context, silent <-chan struct{}) ([]Row, error) {
	w := c.conn
	if c.Answered() {
		return c.rows, c.err
	}
	select { // fast path: ctx.Done may start a timer
	case <-w.reader:
	default:
		select {
		case <-c.done:
			return c.rows, c.err
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-silent:
			return nil, ErrSilent
		case <-w.reader:
		}
	}
	w.used.Store(true)
	defer w.giveReader()
	end, timed := onlyTimed(ctx)
	if !timed && ctx.Done() != nil {
		stop := context.AfterFunc(ctx, w.interrupt)
		defer stop()
	}
	for !c.Answered() && ctx.Err() == nil {
		if timed {
			w.lookUp(end)
		}
		if isClosed(silent) { // check after lookUp, which may have cleared the interrupt of MarkSilent
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

// onlyTimed returns the deadline of a context that ends by its deadline only and tells it without a
// timer.
func onlyTimed(ctx context.Context) (end time.Time, ok bool) {
	beneath := deadline.Beneath(ctx)
	if beneath == ctx || beneath.Done() != nil {
		return time.Time{}, false
	}
	return ctx.Deadline()
}

// Result returns the result of a function.
func (c *Call) Result(ctx context.Context) (Row, error) { return result(c.Wait(ctx)) }

// ResultUnlessSilent is Result, but returns ErrSilent if the connection is marked as silent before
// the answer arrives. The call then continues.
func (c *Call) ResultUnlessSilent(ctx context.Context) (Row, error) {
	return result(c.wait(ctx, c.conn.silent))
}

// result splits the result of a function.
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

// Cancel asks the server to cancel the current statement, and waits until the call is answered or
// ctx ends. Nothing else may be in flight on the connection.
func (c *Call) Cancel(ctx context.Context) {
	for !c.Answered() && ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, cancelPause)
		_ = c.conn.server.CancelRequest(try) // it may arrive before the call, or get lost
		_, _ = c.Wait(try)
		cancel()
	}
}

// cancelPause is how long a cancelled call may take to end before it is cancelled again.
const cancelPause = 200 * time.Millisecond

// RequestCancel asks the server to cancel the current statement, and returns when the server has
// signalled its process. The signal hits whichever call the process is executing by then, and a
// commit that is waiting for a standby reports success when it is cancelled. So every call in
// flight during RequestCancel gets the error doubt, unless doubt is nil or the server reports an
// error of its own.
func (w *Conn) RequestCancel(ctx context.Context, doubt error) error {
	w.doubtCalls(doubt, 1)
	err := w.server.CancelRequest(ctx)
	w.doubtCalls(doubt, -1)
	return err
}

// doubtCalls begins (more is 1) or ends (-1) a period in which a cancel may hit any call. Calls
// that are in flight at its end may have been hit too.
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
