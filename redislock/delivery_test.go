package redislock_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redislock"
)

// TestDeliveredSecondsLate: a request of any kind arrives seconds after its client has
// given it up: when its retry was granted and released, when the client was closed, or
// when its process had ended and nothing else of it arrived. It does nothing.
func TestDeliveredSecondsLate(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: a request arrives after its client gave up", verdict.Safe)
	delays := []time.Duration{time.Second}
	if os.Getenv("FENCELOCK_SLOW") != "" {
		delays = append(delays, 2*time.Second, 5*time.Second, 10*time.Second)
	}
	s := newScene(t)
	for _, delay := range delays {
		var all []*lateRequest
		for way, play := range map[string]func(*lateRequest) int{
			"overtaken": (*lateRequest).overtaken, "closed": (*lateRequest).closed, "ended": (*lateRequest).ended,
		} {
			for _, req := range kinds() {
				req.Name = fmt.Sprintf("%s-%s-%v", req.Name, way, delay)
				if way == "ended" {
					req.TTL = time.Second // a try has half of that
				}
				l := s.lateRequest(req)
				l.withdrawals = play(l)
				all = append(all, l)
			}
		}
		for _, l := range all {
			l.deliver(delay)
			s.free(l.req.Name)
		}
	}
}

// lateRequest is a request that a proxy keeps.
type lateRequest struct {
	scene
	engine *redislock.Engine
	tap    *tap
	held   *faults.Held
	caught time.Time
	req    driver.Request
	served atomic.Int64 // by the server's clock, when it may be served at the latest
	left   atomic.Int32 // withdrawals that the server has answered
	// withdrawals are how many bar it before its time is over.
	withdrawals int

	cancel context.CancelFunc
	grant  *driver.Grant // nil if there is none; valid when done is closed
	done   chan struct{}
}

// lateRequest makes a request through a proxy that keeps it.
func (s scene) lateRequest(req driver.Request) *lateRequest {
	s.Helper()
	proxy, err := faults.NewProxy(s.server.Addr())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = proxy.Close() })
	l := &lateRequest{scene: s, req: req, done: make(chan struct{})}
	l.tap = &tap{Conn: redisconn.Rueidis(rueidisClient(s, rueidisOption(proxy.Addr())))}
	l.engine = redislock.NewConn(l.tap, patient(nil))
	s.Cleanup(func() { _ = l.engine.Close() })
	s.hold(l.engine, request("warm-"+req.Name)).free()
	l.tap.calls(l.see)
	l.held = proxy.HoldNext("lock:" + req.Name)
	ctx, cancel := context.WithCancel(s.Context())
	s.Cleanup(func() { cancel(); <-l.done })
	l.cancel = cancel
	go func() { // ends when the engine answers, with the test at the latest
		defer close(l.done)
		if g, err := l.engine.Acquire(ctx, req); err == nil {
			l.grant = &g
		}
	}()
	<-l.held.Caught()
	l.caught = time.Now()
	return l
}

// see notes what concerns the request.
func (l *lateRequest) see(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
	if c.Script == redislock.AcquireScript {
		l.note(c.Args[4])
	}
	r := do()
	if c.Script == redislock.LeaveScript && r.Err == nil {
		l.left.Add(1)
	}
	return r
}

// note keeps until when the first try is served.
func (l *lateRequest) note(until string) {
	at, _ := strconv.ParseInt(until, 10, 64)
	l.served.CompareAndSwap(0, at)
}

// deliver waits until the request is so late, and either its time is over or it has been
// withdrawn.
func (l *lateRequest) deliver(delay time.Duration) {
	time.Sleep(time.Until(l.caught.Add(delay)))
	l.scene.until("its time is over", func() bool {
		return l.clock() > l.served.Load() || int(l.left.Load()) >= l.withdrawals
	})
	l.held.Deliver()
	<-l.held.Answered()
	l.held.End()
}

func (l *lateRequest) overtaken() (withdrawals int) {
	l.held.ResetClients()
	<-l.done
	if l.grant == nil {
		l.Fatal("not granted")
	}
	if l.req.MinHold > 0 { // the minimum hold is not what the test is about
		l.server.Do(l, "DEL", "fencelock:2:closed:{lock:"+l.req.Name+"}")
	}
	hold{l.scene, l.engine, l.req, *l.grant}.free()
	return 0 // its release has told
}

func (l *lateRequest) closed() (withdrawals int) {
	l.cancel()
	<-l.done
	if err := l.engine.Close(); err != nil {
		l.Error(err)
	}
	return 1
}

func (l *lateRequest) ended() (withdrawals int) {
	l.tap.calls(func(redisconn.Call, func() redisconn.Reply) redisconn.Reply { return redisconn.Reply{Err: errLost} })
	l.cancel()
	return math.MaxInt
}
