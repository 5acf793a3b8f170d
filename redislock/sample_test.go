package redislock_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redislock"
)

// TestOldSampleSaysNothing: the latest time that a server's clock may show is told from a
// sample that is young, or not at all: it grows by a hundredth of the sample's age.
func TestOldSampleSaysNothing(t *testing.T) {
	t.Parallel()
	if at := redislock.Until(time.Second, time.Second); at < 2010*time.Millisecond || at > 3*time.Second {
		t.Errorf("%v after a sample of a second ago", at)
	}
	if at := redislock.Until(10*time.Hour, time.Second); at != 0 {
		t.Errorf("%v after a sample of ten hours ago", at)
	}
}

// seated is a client with a shared waiter that takes its place again. The request for that
// is on its way, and the waiter is let in meanwhile.
type seated struct {
	scene
	tap    *tap
	reader hold // another one, who stays
	waiter *call
	tokens chan string // of the waiter's grants, once they were told
	arrive func()      // lets the request arrive, and returns when it has been answered
}

func (s scene) seated(req driver.Request) seated {
	s.Helper()
	a := s.engine(nil)
	b, tap := s.tapped(nil)
	four := shared(request("n"), 4)
	blocker := s.hold(a, weighing(four, 3))
	w := seated{scene: s, tap: tap, reader: s.hold(a, four), tokens: make(chan string, 9)}
	tap.texts(func(text string, pass func(string)) {
		if pass(text); strings.HasPrefix(text, "grant ") {
			w.tokens <- strings.Fields(text)[2]
		}
	})
	w.waiter = s.queue(b, shared(req, 4))
	under, arrived, answered := make(chan struct{}), make(chan struct{}), make(chan struct{})
	over := sync.OnceFunc(func() { close(answered) })
	begin := sync.OnceFunc(func() { close(under) })
	w.arrive = sync.OnceFunc(func() { close(arrived); <-answered })
	s.Cleanup(w.arrive)
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		if c.Script != redislock.TouchScript || len(c.Args) <= 6 { // it only asks
			return do()
		}
		begin()
		<-arrived
		defer over()
		c.Args[3] = number(time.Now().Add(time.Hour).UnixMicro()) // until when it is served
		return tap.Conn.Eval(s.Context(), []redisconn.Call{c})[0]
	})
	tap.disconnect()()
	<-under
	blocker.free()
	return w
}

// keepsOne fails the test unless the waiter gets in, and has one seat.
func (w seated) keepsOne() {
	w.Helper()
	h := w.waiter.granted()
	if st := w.status("n"); len(st.Holders) != 2 || st.Holders[1].Token != h.Token {
		w.Errorf("token %d, but these hold: %+v", h.Token, st.Holders)
	}
	h.free()
	w.reader.free()
	w.clean("n")
}

// TestSecondSeat: a shared waiter has its grant, and its request is put back into the queue
// afterwards. It has one seat.
func TestSecondSeat(t *testing.T) {
	t.Parallel()
	w := newScene(t).seated(request("n"))
	<-w.tokens
	<-w.waiter.done
	w.arrive()
	w.keepsOne()
}

// TestSeatThatNobodyReadOf: a shared waiter takes its place again before it has read that it
// was let in. The answer is the grant that it has, and it has one seat.
func TestSeatThatNobodyReadOf(t *testing.T) {
	t.Parallel()
	req, busy := request("n"), make(chan struct{})
	read := sync.OnceFunc(func() { close(busy) })
	t.Cleanup(read)
	req.OnWait = func(driver.WaitInfo) { <-busy } // on the goroutine that reads
	w := newScene(t).seated(req)
	first := <-w.tokens
	w.arrive()
	read()
	if h := w.waiter.granted(); number(h.Token) != first {
		t.Errorf("it was told token %s, and has %d", first, h.Token)
	}
	w.keepsOne()
}

// TestLeavingIsNotDying: the last known waiter of a process gives up while another
// is about to join. The process is not taken for dead.
func TestLeavingIsNotDying(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, c := s.engine(nil), s.engine(nil)
	b, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	w := s.queue(b, request("n"))
	joined, left := make(chan struct{}), make(chan struct{})
	join, leave := sync.OnceFunc(func() { close(joined) }), sync.OnceFunc(func() { close(left) })
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		switch c.Script {
		case redislock.AcquireScript:
			r := do()
			join()
			<-left
			return r
		case redislock.LeaveScript:
			<-joined
			defer leave()
		}
		return do()
	})
	w.cancel()
	first := s.ask(b, request("n"))
	_, _ = w.ended()
	tap.calls(nil)
	second := s.queue(c, request("n"))
	h.free()
	g := first.kept()
	if second.answered() {
		t.Error("it lost its place")
	}
	g.free()
}
