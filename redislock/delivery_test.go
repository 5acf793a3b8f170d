package redislock_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/faults"
	"github.com/fencelock/fencelock/redislock"
)

// TestDeliveredSecondsLate: a request of any kind arrives seconds after its client has
// given it up: when its retry was granted and released, when the client was closed, or
// when its process had ended and nothing else of it arrived. It does nothing.
func TestDeliveredSecondsLate(t *testing.T) {
	t.Parallel()
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
			for _, req := range append(kinds(), request("set")) {
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
			s.free(l.reqs[0].Name)
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
	reqs   []driver.Request
	served atomic.Int64 // by the server's clock, when it may be served at the latest
	left   atomic.Int32 // withdrawals that the server has answered
	// withdrawals are how many bar it before its time is over.
	withdrawals int

	cancel context.CancelFunc
	grants []driver.Grant // when done is closed
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
	l := &lateRequest{scene: s, reqs: []driver.Request{req}, done: make(chan struct{})}
	l.tap = &tap{Conn: redisconn.Rueidis(rueidisClient(s, rueidisOption(proxy.Addr())))}
	l.engine = redislock.NewConn(l.tap, patient(nil))
	s.Cleanup(func() { _ = l.engine.Close() })
	s.hold(l.engine, request("warm-"+req.Name)).free()
	if _, err := l.engine.AcquireAll(s.Context(), []driver.Request{request("warm-" + req.Name)}); err != nil { // the server knows the script
		s.Fatal(err)
	}
	l.tap.calls(l.see)
	l.held = proxy.HoldNext("lock:" + req.Name)
	ctx, cancel := context.WithCancel(s.Context())
	s.Cleanup(func() { cancel(); <-l.done })
	l.cancel = cancel
	if strings.HasPrefix(req.Name, "set-") {
		other := req
		other.Name += "-other"
		l.reqs = append(l.reqs, other)
	}
	go func() { // ends when the engine answers, with the test at the latest
		defer close(l.done)
		if len(l.reqs) > 1 {
			l.grants, _ = l.engine.AcquireAll(ctx, l.reqs)
		} else if g, err := l.engine.Acquire(ctx, req); err == nil {
			l.grants = []driver.Grant{g}
		}
	}()
	<-l.held.Caught()
	l.caught = time.Now()
	return l
}

// see notes what concerns the request.
func (l *lateRequest) see(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
	switch c.Script {
	case redislock.AcquireScript:
		l.note(c.Args[3])
	case redislock.AcquireAllScript:
		l.note(c.Args[2])
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
	if len(l.grants) < len(l.reqs) {
		l.Fatal("not granted")
	}
	for i, g := range l.grants {
		if l.reqs[i].MinHold > 0 { // the minimum hold is not what the test is about
			l.server.Do(l, "SET", "fence:{lock:"+l.reqs[i].Name+"}", fmt.Sprintf("%d %d - 0", g.Token, g.Token), "PX", "60000")
		}
		hold{l.scene, l.engine, l.reqs[i], g}.free()
	}
	if len(l.reqs) == 1 {
		return 0 // its release has told
	}
	return len(l.reqs)
}

func (l *lateRequest) closed() (withdrawals int) {
	l.cancel()
	<-l.done
	if err := l.engine.Close(); err != nil {
		l.Error(err)
	}
	return len(l.reqs)
}

func (l *lateRequest) ended() (withdrawals int) {
	l.tap.calls(func(redisconn.Call, func() redisconn.Reply) redisconn.Reply { return redisconn.Reply{Err: errLost} })
	l.cancel()
	return math.MaxInt
}
