package faults_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/faults"
)

func TestSwallowReply(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	c, other := dial(t, p), dial(t, p)
	cut := p.SwallowReply("INCR a")
	c.ask("PING", "+PONG")
	c.send("INCR a")
	c.isReset()
	select {
	case <-cut:
	case <-time.After(2 * time.Minute):
		t.Error("nobody was told of the cut")
	}
	if got := r.Do(t, "GET", "a"); got != "1" {
		t.Errorf("after the lost reply: %q, want 1", got)
	}
	other.ask("INCR a", ":2") // it happens once
}

// TestSwallowReplyOfManyRequests proves that the server executes what it has
// been sent before the cut, also when it is slow to begin.
func TestSwallowReplyOfManyRequests(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	c := dial(t, p)
	c.ask("PING", "+PONG")
	r.Freeze(t)
	p.SwallowReply("INCR b")
	c.send("INCR a\r\nINCR b\r\nINCR c")
	c.hearsNothing()
	r.Thaw(t)
	c.isReset()
	if got := r.Do(t, "MGET", "a", "b", "c"); got != "1\n1\n1" {
		t.Errorf("executed: %q", got)
	}
}

func TestRuleSeesTextInTwoParts(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	var calls atomic.Int32
	p.OnRequest("INCR a", func() { calls.Add(1) })
	cut := p.SwallowReply("INCR a")
	c := dial(t, p)
	c.SetDeadline(time.Now().Add(20 * time.Second))
	c.Write([]byte("PING\r\nIN"))
	c.hears("+PONG")
	c.send("CR a")
	c.isReset()
	<-cut
	if got := r.Do(t, "GET", "a"); got != "1" || calls.Load() != 1 {
		t.Errorf("after the lost reply: %q, %d calls of the hook", got, calls.Load())
	}
}

func TestHookActsBeforeTheRequest(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	c := dial(t, p)
	var calls atomic.Int32
	var before string
	remove := p.OnRequest("SET a", func() {
		calls.Add(1)
		before = r.Do(t, "EXISTS", "a")
	})
	c.ask("SET a 1", "+OK")
	if before != "0" || calls.Load() != 1 {
		t.Errorf("the hook saw %q keys in %d calls, want 0 in 1", before, calls.Load())
	}
	remove()
	c.ask("SET a 2", "+OK")
	if calls.Load() != 1 {
		t.Error("a removed hook was called")
	}
}

func TestHookLosesTheRequest(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	for _, c := range []struct {
		name  string
		fault func()
	}{
		{"drop", func() { p.Drop(faults.Both) }},
		{"reset", p.Reset},
	} {
		t.Run(c.name, func(t *testing.T) {
			remove := p.OnRequest("SET a", c.fault)
			defer remove()
			conn := dial(t, p)
			conn.ask("PING", "+PONG")
			conn.send("SET a 1")
			if c.name == "drop" {
				lose(t, p, 1)
				heal(t, p)
			}
			conn.isReset()
			if got := r.Do(t, "EXISTS", "a"); got != "0" {
				t.Error("the request reached the server")
			}
		})
	}
}

// TestHookIsQuietInAPartition: a request that does not pass has no hook, and no
// rule is used up by it.
func TestHookIsQuietInAPartition(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	var calls atomic.Int32
	p.OnRequest("INCR", func() { calls.Add(1) })
	p.SwallowReply("INCR")
	c := dial(t, p)
	c.ask("PING", "+PONG")
	p.Drop(faults.Both)
	c.send("INCR a")
	lose(t, p, 1)
	heal(t, p)
	c.isReset()
	if calls.Load() != 0 {
		t.Error("a hook was called for a lost request")
	}
	c = dial(t, p)
	c.send("INCR a")
	c.isReset()
	if calls.Load() != 1 {
		t.Errorf("%d calls, want 1", calls.Load())
	}
}
