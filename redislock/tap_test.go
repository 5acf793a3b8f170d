package redislock_test

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redislock"
)

// tap is a Conn that shows a test what passes, and loses what it is told to.
type tap struct {
	redisconn.Conn
	longGrants bool // what the engine grants to those who wait lasts longer

	mu      sync.Mutex // guards all below
	onCall  func(redisconn.Call, func() redisconn.Reply) redisconn.Reply
	running int // calls
	onText  func(text string, pass func(string))
	passing func(string) // to the engine
	stop    context.CancelFunc
	down    chan struct{} // closed when it may subscribe again; nil means it may
}

// errLost is what a client says whose answer did not come.
var errLost = errors.New("i/o timeout")

// calls makes f decide about every single call: do runs it on the server.
func (t *tap) calls(f func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.onCall = f
}

// texts makes f decide about every message.
func (t *tap) texts(f func(text string, pass func(string))) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.onText = f
}

// loseReply lets the next run of a script reach the server, but not its answer.
// What happens in between is up to then.
func (t *tap) loseReply(s *redisconn.Script, then func(redisconn.Reply)) {
	t.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		if c.Script != s {
			return do()
		}
		t.calls(nil)
		r := do()
		then(r)
		return redisconn.Reply{Err: errLost}
	})
}

// disconnect breaks the subscription until reconnect.
func (t *tap) disconnect() (reconnect func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.down = make(chan struct{})
	t.stop()
	return sync.OnceFunc(func() { close(t.down) })
}

// Unreached adds the addresses to an error, as the connection below does.
func (t *tap) Unreached(err error) error {
	return t.Conn.(interface{ Unreached(error) error }).Unreached(err)
}

// say gives the engine a message.
func (t *tap) say(text string) {
	t.mu.Lock()
	pass := t.passing
	t.mu.Unlock()
	pass(text)
}

func (t *tap) Eval(ctx context.Context, calls []redisconn.Call) []redisconn.Reply {
	t.mu.Lock()
	f := t.onCall
	t.running++
	t.mu.Unlock()
	defer t.ran()
	sent := calls
	if t.longGrants {
		sent = slices.Clone(calls)
		for i := range sent {
			sent[i].Script = redislock.WithLongGrants(sent[i].Script)
		}
	}
	if f == nil || len(calls) != 1 {
		return t.Conn.Eval(ctx, sent)
	}
	return []redisconn.Reply{f(calls[0], func() redisconn.Reply { return t.Conn.Eval(ctx, sent)[0] })}
}

func (t *tap) ran() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
}

// busy reports whether a call has no answer yet.
func (t *tap) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running > 0
}

func (t *tap) Subscribe(ctx context.Context, channel string, ready func(), message func(string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.mu.Lock()
	t.passing, t.stop = message, cancel
	down := t.down
	t.mu.Unlock()
	if down != nil {
		select {
		case <-down:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return t.Conn.Subscribe(ctx, channel, ready, func(text string) {
		t.mu.Lock()
		f := t.onText
		t.mu.Unlock()
		if f == nil {
			message(text)
		} else {
			f(text, message)
		}
	})
}
