package pglock

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// statement is prepared when a connection first uses it.
type statement struct{ name, sql string }

// groups reports whether a statement may share its transaction with others. At the
// end of each the server goes through all locks of the session, which takes
// milliseconds when there are ten thousand; so statements that come while others
// are under way wait for their answers and are then sent as one transaction.
func (s *statement) groups() bool {
	switch s {
	case stmtTry, stmtQuick, stmtUnlock, stmtRelease, stmtReleased, stmtForgetLate:
		return true
	}
	return false
}

// lasts reports whether what a statement did outlasts a failure of its transaction:
// an unlock does, and so does a lock, but not its token.
func (s *statement) lasts() bool { return s == stmtUnlock || s == stmtRelease || s == stmtReleased }

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

// row is what a statement returned: texts, or binary values if it is eager; nil for
// NULL.
type row [][]byte

// text returns a column, "" if it is NULL.
func (r row) text(i int) string { return string(r[i]) }

// int returns a column that is an integer, 0 if it is NULL.
func (r row) int(i int) int64 {
	n, _ := strconv.ParseInt(string(r[i]), 10, 64) // the server writes integers
	return n
}

// binary returns a column that is an integer, a truth or a time in microseconds, in
// binary form; 0 if it is NULL.
func (r row) binary(i int) (n int64) {
	for _, b := range r[i] {
		n = n<<8 | int64(b)
	}
	return n
}

// ints returns a column that is an array of integers.
func (r row) ints(i int) []int64 {
	var all []int64
	for s := range strings.SplitSeq(strings.Trim(r.text(i), "{}"), ",") {
		n, _ := strconv.ParseInt(s, 10, 64) // the server writes integers
		all = append(all, n)
	}
	return all
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
	if c.answered() {
		return // before its transaction ended
	}
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
	w := c.wire
	if c.stmt.blocks() && w.idle.Swap(false) {
		w.interrupt() // the wire's own reader would have to pass the answer on
	}
	select {
	case <-c.done:
		return c.rows, c.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.turn:
	}
	w.used.Store(true)
	defer w.giveTurn()
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, w.interrupt)
		defer stop()
	}
	for !c.answered() && ctx.Err() == nil {
		w.receive()
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
