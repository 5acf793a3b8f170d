package pipe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/pglock/internal/pipe"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

func none(string) {}

// TestEachCallGetsItsAnswer: also when one of them fails, and when they are asked for in
// another order.
func TestEachCallGetsItsAnswer(t *testing.T) {
	w, p := dial(t, none)
	var calls []*pipe.Call
	for i := range 5 {
		calls = append(calls, w.Call(1, fmt.Sprint("call", i)))
	}
	for i := range calls {
		if got := p.call(t); got != fmt.Sprint("call", i) {
			t.Errorf("the peer received %q as call %d", got, i)
		}
		if i == 2 {
			p.refuse(t, "ERROR", "22000")
		} else {
			p.answer(t, fmt.Sprint("answer", i))
		}
	}
	if _, err := calls[2].Wait(soon(t)); sqlState(err) != "22000" {
		t.Errorf("the call that was refused: %v", err)
	}
	for _, i := range []int{4, 0, 3, 1} {
		want(t, calls[i], fmt.Sprint("answer", i))
	}
}

func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// TestCallIsOneMessage: nothing of it can be lost but all that follows, so no server is left
// inside a transaction, where it would wait for ever.
func TestCallIsOneMessage(t *testing.T) {
	w, p := dial(t, none)
	w.Call(1, "a")
	w.Call(2, "b")
	for _, name := range []string{"a", "b"} {
		if got := p.call(t); got != name {
			t.Errorf("%q came instead of %q", got, name)
		}
	}
}

// TestQueryEndsWithSync: all messages of a query are sent at once.
func TestQueryEndsWithSync(t *testing.T) {
	w, p := dial(t, none)
	c := w.Query("SELECT $1", "x")
	for _, kind := range []pgproto3.FrontendMessage{&pgproto3.Parse{}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Sync{}} {
		m, err := p.Receive()
		if err != nil || fmt.Sprintf("%T", m) != fmt.Sprintf("%T", kind) {
			t.Fatalf("received %T, %v; want %T", m, err, kind)
		}
	}
	p.say(t, &pgproto3.ParseComplete{}, &pgproto3.BindComplete{}, &pgproto3.DataRow{Values: [][]byte{[]byte("x"), nil}},
		&pgproto3.DataRow{Values: [][]byte{[]byte("y"), []byte("7")}}, &pgproto3.CommandComplete{}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	rows, err := c.Wait(soon(t))
	if err != nil || len(rows) != 2 || rows[0].Text(0) != "x" || rows[1].Int(1) != 7 {
		t.Errorf("%q, %v", rows, err)
	}
}

// TestAnAnswerCountsWhenItsTransactionIsOver: the result alone says nothing.
func TestAnAnswerCountsWhenItsTransactionIsOver(t *testing.T) {
	w, p := dial(t, none)
	c := w.Call(1, "a")
	p.call(t)
	p.say(t, &pgproto3.FunctionCallResponse{Result: []byte("ok")})
	_ = p.conn.Close()
	if r, err := c.Result(soon(t)); !errors.Is(err, pipe.ErrEnded) {
		t.Errorf("%q, %v, of a transaction that nobody said to be over", r, err)
	}
}

// TestLateAnswers: a call whose context ends keeps its place, and gets its answer when that
// comes; nobody else does.
func TestLateAnswers(t *testing.T) {
	w, p := dial(t, none)
	first, second := w.Call(1, "first"), w.Call(1, "second")
	if _, err := first.Wait(ended()); !errors.Is(err, context.Canceled) {
		t.Errorf("a call with a context that has ended: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() { // ends with ctx
		_, err := first.Wait(ctx)
		waited <- err
	}()
	cancel()
	if err := await(t, waited, "the end of a wait"); !errors.Is(err, context.Canceled) || first.Answered() {
		t.Errorf("a call whose context ends: %v", err)
	}
	p.call(t)
	p.call(t)
	p.answer(t, "one")
	p.answer(t, "two")
	want(t, second, "two")
	want(t, first, "one")
}

// TestContextThatEndsInsideAMessage: what was read of it stays read.
func TestContextThatEndsInsideAMessage(t *testing.T) {
	w, p := dial(t, none)
	c := w.Call(1, "a")
	p.call(t)
	b, err := (&pgproto3.FunctionCallResponse{Result: []byte(strings.Repeat("x", 1000))}).Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range [][]byte{b[:3], b[3:500], b[500:]} {
		p.write(t, part)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if _, err := c.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()
	}
	p.say(t, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	want(t, c, strings.Repeat("x", 1000))
}

// TestFatalErrorEndsEverything: at once, also when nobody waits, in the server's words.
func TestFatalErrorEndsEverything(t *testing.T) {
	w, p := dial(t, none)
	p.refuse(t, "FATAL", "57P01")
	await(t, w.Dead(), "the end of the connection")
	if err := w.Err(); !errors.Is(err, pipe.ErrEnded) || sqlState(err) != "57P01" {
		t.Error(err)
	}
	if _, err := w.Call(1, "a").Wait(soon(t)); !errors.Is(err, pipe.ErrEnded) {
		t.Errorf("a call on a connection that has ended: %v", err)
	}
}

// TestConnectionThatBreaksInsideAFlush: every call ends, those that were sent, half of one,
// and those that were not.
func TestConnectionThatBreaksInsideAFlush(t *testing.T) {
	w, p := dial(t, none)
	var calls []*pipe.Call
	for i := range 100 {
		calls = append(calls, w.Call(1, fmt.Sprint(i)))
	}
	p.call(t)
	p.answer(t, "0")
	want(t, calls[0], "0")
	buf := make([]byte, 10) // a part of the next one
	if _, err := p.conn.Read(buf); err != nil {
		t.Fatal(err)
	}
	_ = p.conn.Close()
	for _, c := range calls[1:] {
		if _, err := c.Wait(soon(t)); !errors.Is(err, pipe.ErrEnded) {
			t.Fatalf("a call on a connection that broke: %v", err)
		}
	}
	await(t, w.Dead(), "the end of the connection")
}

// TestFewInFlight: more is sent when something is answered.
func TestFewInFlight(t *testing.T) {
	w, p := dial(t, none)
	var last *pipe.Call
	for i := range 200 {
		last = w.Call(1, fmt.Sprint(i))
	}
	for range pipe.MaxCommon {
		p.call(t)
	}
	_ = p.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if m, err := p.Receive(); err == nil {
		t.Errorf("more than %d calls are in flight: %v", pipe.MaxCommon, m)
	}
	for i := range 200 {
		if i >= pipe.MaxCommon {
			p.call(t)
		}
		p.answer(t, fmt.Sprint(i))
	}
	want(t, last, "199")
}

// TestUrgentCallsComeFirst: they are sent before calls that wait to be sent, though few may be
// under way.
func TestUrgentCallsComeFirst(t *testing.T) {
	w, p := dial(t, none)
	for i := range 20 {
		w.Call(1, fmt.Sprint(i))
	}
	urgent := []*pipe.Call{w.CallFirst(1, "first"), w.CallFirst(1, "second")}
	for range pipe.MaxCommon {
		p.call(t)
	}
	if a, b := string(p.call(t)), string(p.call(t)); a != "first" || b != "second" {
		t.Errorf("%q and %q are sent, want the urgent calls", a, b)
	}
	for i := range pipe.MaxCommon {
		p.answer(t, fmt.Sprint(i))
	}
	p.answer(t, "first")
	p.answer(t, "second")
	want(t, urgent[0], "first")
	want(t, urgent[1], "second")
}

// oldest returns the call that the peer is at.
func oldest(w *pipe.Conn) *pipe.Call {
	c, _ := w.Oldest()
	return c
}

// TestLongAnswersBesideLongCalls: a server that is sending a long answer reads nothing meanwhile, so
// whoever reads it must not be sending a long call.
func TestLongAnswersBesideLongCalls(t *testing.T) {
	w, p := dial(t, none)
	w.AllowWrites(patience / 2)
	const size = 32 << 20 // more than the sockets take
	var calls []*pipe.Call
	for i := range pipe.MaxCommon {
		calls = append(calls, w.Call(1, fmt.Sprint(i)))
	}
	long := w.Call(1, strings.Repeat("x", size))
	for range calls {
		p.call(t)
	}
	p.answer(t, "0") // there is room for the long call
	want(t, calls[0], "0")
	_ = p.conn.SetWriteDeadline(time.Now().Add(patience / 2))
	p.answer(t, strings.Repeat("y", size))
	want(t, calls[1], strings.Repeat("y", size))
	for i := range calls[2:] {
		p.answer(t, fmt.Sprint(i+2))
	}
	if got := p.call(t); len(got) != size {
		t.Errorf("the long call has %d bytes", len(got))
	}
	p.answer(t, "long")
	want(t, long, "long")
}

// TestStalledWrite: whoever sends to a peer that reads nothing stops, and nobody else. Its end
// ends the write.
func TestStalledWrite(t *testing.T) {
	w, _ := dial(t, none)
	big := make(chan *pipe.Call, 1)
	go func() { big <- w.Call(1, strings.Repeat("x", 64<<20)) }() // ends with the connection
	for oldest(w) == nil {
		time.Sleep(time.Millisecond)
	}
	others := make(chan *pipe.Call, 1)
	go func() { // ends at once
		_ = w.Err()
		others <- w.Call(1, "small")
	}()
	small := await(t, others, "a call behind a write that does not end")
	if small.Answered() || len(big) > 0 || w.Err() != nil {
		t.Error("the write did not block; the test shows nothing")
	}
	living, q := dial(t, none)
	c := living.Call(1, "a")
	q.call(t)
	q.answer(t, "b")
	want(t, c, "b")
	w.AllowWrites(10 * time.Millisecond)
	for _, c := range []*pipe.Call{await(t, big, "the end of the write"), small} {
		if _, err := c.Wait(soon(t)); !errors.Is(err, pipe.ErrEnded) {
			t.Errorf("a call that was not sent: %v", err)
		}
	}
}

// TestCancel: it asks again until there is an answer, whichever it is, and not after it.
func TestCancel(t *testing.T) {
	w, p := dial(t, none)
	c := w.CallPatiently(time.Hour, 1, "a")
	p.call(t)
	gone := make(chan struct{})
	go func() { // ends with the answer
		c.Cancel(soon(t))
		close(gone)
	}()
	await(t, p.cancels, "a cancel, which gets lost")
	await(t, p.cancels, "another one")
	p.refuse(t, "ERROR", "57014")
	await(t, gone, "the end of a cancel")
	if _, err := c.Wait(soon(t)); sqlState(err) != "57014" {
		t.Errorf("a call that was cancelled: %v", err)
	}

	w, p = dial(t, none) // where no cancel of the first call can arrive late
	granted := w.Call(1, "b")
	p.call(t)
	p.answer(t, "granted")
	want(t, granted, "granted")
	granted.Cancel(soon(t))
	if len(p.cancels) > 0 {
		t.Error("a call was cancelled after its answer")
	}

	both := w.Call(1, "c")
	p.call(t)
	gone = make(chan struct{})
	go func() { // ends with the answer
		both.Cancel(soon(t))
		close(gone)
	}()
	await(t, p.cancels, "a cancel")
	p.answer(t, "in the same instant")
	await(t, gone, "the end of a cancel")
	want(t, both, "in the same instant")
}

// TestCancelDoubtsWhatItMayHit: nobody knows which call a cancel hits, and one that commits
// may say that all is well. So no call that was under way is believed.
func TestCancelDoubtsWhatItMayHit(t *testing.T) {
	w, p := dial(t, none)
	doubt := errors.New("it may have been cancelled")
	first, second, third := w.Call(1, "a"), w.Call(1, "b"), w.Call(1, "c")
	for range 3 {
		p.call(t)
	}
	if err := w.RequestCancel(soon(t), doubt); err != nil {
		t.Fatal(err)
	}
	p.refuse(t, "ERROR", "57014")
	p.answer(t, "all is well")
	p.answer(t, "and here")
	if _, err := first.Wait(soon(t)); sqlState(err) != "57014" {
		t.Errorf("a call that was cancelled: %v", err)
	}
	for _, c := range []*pipe.Call{second, third} {
		if _, err := c.Wait(soon(t)); !errors.Is(err, doubt) {
			t.Errorf("a call that was under way: %v", err)
		}
	}
	later := w.Call(1, "d")
	p.call(t)
	p.answer(t, "later")
	want(t, later, "later")
}

// TestCancelBesideAnother: the doubt of one cancel outlasts another that has none.
func TestCancelBesideAnother(t *testing.T) {
	w, p := dial(t, none)
	doubt := errors.New("it may have been cancelled")
	c := w.Call(1, "a")
	p.call(t)
	p.busy.Lock()
	var all sync.WaitGroup
	for _, d := range []error{doubt, nil} {
		all.Go(func() { _ = w.RequestCancel(soon(t), d) }) // ends when the peer is not busy
		await(t, p.cancels, "a cancel")
	}
	next := w.Call(1, "b")
	p.call(t)
	p.answer(t, "all is well")
	p.answer(t, "and here")
	for _, c := range []*pipe.Call{c, next} {
		if _, err := c.Wait(soon(t)); !errors.Is(err, doubt) {
			t.Errorf("a call that was under way: %v", err)
		}
	}
	p.busy.Unlock()
	all.Wait()
}

// TestCloseWithCallsInFlight: they end with the cause, and the server receives a goodbye.
func TestCloseWithCallsInFlight(t *testing.T) {
	w, p := dial(t, none)
	c := w.Call(1, "a")
	p.call(t)
	cause := errors.New("closed by a test")
	w.Close(cause)
	if _, err := c.Wait(soon(t)); !errors.Is(err, pipe.ErrEnded) || !errors.Is(err, cause) {
		t.Errorf("a call of a connection that was closed: %v", err)
	}
	if m, err := p.Receive(); err != nil {
		t.Error(err)
	} else if _, ok := m.(*pgproto3.Terminate); !ok {
		t.Errorf("received %T instead of a goodbye", m)
	}
	w.Close(errors.New("again"))
	if err := w.Err(); !errors.Is(err, cause) {
		t.Errorf("closed twice: %v", err)
	}
}

// TestCloseDuringAWrite: no goodbye comes into the middle of a message.
func TestCloseDuringAWrite(t *testing.T) {
	w, _ := dial(t, none)
	sent := make(chan struct{})
	go func() { // ends with the connection
		w.Call(1, strings.Repeat("x", 64<<20))
		close(sent)
	}()
	for oldest(w) == nil {
		time.Sleep(time.Millisecond)
	}
	w.Close(errors.New("closed by a test"))
	await(t, sent, "the end of the write")
	await(t, w.Dead(), "the end of the connection")
}

// TestNotifications: they are delivered while somebody waits for an answer, and while nobody does.
func TestNotifications(t *testing.T) {
	heard := make(chan string, 10)
	w, p := dial(t, func(s string) { heard <- s })
	p.say(t, &pgproto3.NotificationResponse{Channel: "c", Payload: "idle"})
	if got := await(t, heard, "a notification"); got != "idle" {
		t.Error(got)
	}
	c := w.Call(1, "a")
	p.call(t)
	p.say(t, &pgproto3.NotificationResponse{Channel: "c", Payload: "busy"})
	if got := await(t, heard, "a notification before an answer"); got != "busy" {
		t.Error(got)
	}
	p.answer(t, "b")
	want(t, c, "b")
}

// TestOldest: the call that has waited longest, with its time.
func TestOldest(t *testing.T) {
	w, p := dial(t, none)
	if oldest(w) != nil {
		t.Error("nothing was sent, and something is the oldest")
	}
	before := time.Now()
	first, second := w.Call(1, "a"), w.Call(1, "b")
	if oldest(w) != first || first.Sent().Before(before) {
		t.Error("the first call is not the oldest")
	}
	p.call(t)
	p.answer(t, "")
	want(t, first, "")
	if oldest(w) != second {
		t.Error("the second call is not the oldest")
	}
}

// timed is a context that has a timer only when somebody asks it for Done.
type timed struct {
	context.Context
	end   time.Time
	asked chan struct{} // closed when somebody has asked
	once  func() <-chan struct{}
}

func endingIn(t *testing.T, d time.Duration) *timed {
	c := &timed{Context: context.Background(), end: time.Now().Add(d), asked: make(chan struct{})}
	c.once = sync.OnceValue(func() <-chan struct{} {
		close(c.asked)
		ctx, cancel := context.WithDeadline(context.Background(), c.end)
		t.Cleanup(cancel)
		return ctx.Done()
	})
	return c
}

func (c *timed) Beneath() context.Context    { return c.Context }
func (c *timed) Deadline() (time.Time, bool) { return c.end, true }
func (c *timed) Done() <-chan struct{}       { return c.once() }
func (c *timed) Err() error {
	if time.Now().Before(c.end) {
		return nil
	}
	return context.DeadlineExceeded
}

func (c *timed) unasked() bool {
	select {
	case <-c.asked:
		return false
	default:
		return true
	}
}

// TestDeadlineWithoutATimer: a context that has only a deadline ends a wait at its time, by the timer
// of the connection, also after one with a later deadline. The answer still comes then.
func TestDeadlineWithoutATimer(t *testing.T) {
	var conn atomic.Pointer[pipe.Conn]
	heard := make(chan struct{}, 1)
	w, p := dial(t, func(string) {
		conn.Load().LeaveReading()
		heard <- struct{}{}
	})
	conn.Store(w)
	until := time.Now().Add(patience / 2)
	// wait waits for a call while the connection's own goroutine does not read.
	wait := func(c *pipe.Call, d time.Duration, answer func()) error {
		for time.Now().Before(until) {
			p.say(t, &pgproto3.NotificationResponse{})
			await(t, heard, "a notification")
			ctx := endingIn(t, d)
			answer()
			if _, err := c.Result(ctx); ctx.unasked() || err == nil {
				return err
			}
		}
		return errors.New("each wait asked for Done, or one lasted for ever")
	}
	for range 20 { // some of these waits begin before the answer comes
		c := w.Call(1, "a")
		p.call(t)
		answered := make(chan struct{})
		err := wait(c, patience, func() {
			go func() { // ends when the answer is written
				defer close(answered)
				p.answer(t, "answer")
			}()
		})
		if err != nil {
			t.Fatal(err)
		}
		await(t, answered, "the answer is written")
	}
	c := w.Call(1, "b")
	p.call(t)
	if err := wait(c, 5*time.Millisecond, func() {}); !errors.Is(err, context.DeadlineExceeded) || time.Now().After(until) {
		t.Fatal("a wait that nobody answers ended late or not by its deadline:", err)
	}
	p.answer(t, "late")
	want(t, c, "late")
}
