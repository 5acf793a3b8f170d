package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/words"
)

// listener is the engine's subscription to its own channel.
type listener struct {
	mu  sync.Mutex // guards up, err
	up  chan struct{}
	err error // why it is not up
}

// listen starts the subscription if there is none yet.
func (e *Engine) listen() *listener {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listener == nil {
		e.listener = &listener{up: make(chan struct{})}
		e.spawn(func() { e.subscribe(e.listener) }) // ends with Close
	}
	return e.listener
}

// subscribe keeps the subscription up. What was published while it was down is
// lost, so each time all waiters take their places again.
func (e *Engine) subscribe(l *listener) {
	pause := newBackoff()
	for again := false; e.closed.Err() == nil; again = true {
		err := e.conn.Subscribe(e.closed, e.channel()+e.id, func() {
			pause.Reset()
			l.set(nil)
			if again {
				e.fitness.forget()
			}
			e.rejoin()
		}, e.hear)
		l.set(orElse(err, errEnded))
		e.troubles(orElse(err, errEnded))
		pause.Wait(e.closed)
	}
}

func (l *listener) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.up:
		if err != nil {
			l.up = make(chan struct{})
		}
	default:
		if err == nil {
			close(l.up)
		}
	}
	l.err = err
}

func (l *listener) state() (up chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up, l.err
}

// ready reports whether the subscription stands.
func (l *listener) ready() bool {
	up, _ := l.state()
	select {
	case <-up:
		return true
	default:
		return false
	}
}

// subscribed blocks until the subscription stands, for no longer than RetryTimeout.
func (e *Engine) subscribed(ctx context.Context, l *listener) error {
	up, _ := l.state()
	ctx, cancel := context.WithTimeout(ctx, e.cfg.RetryTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := l.state()
		select {
		case <-up:
			return nil
		case <-ctx.Done():
			return unavailable(fmt.Errorf("subscribing: %w", orElse(err, e.unreached(ctx.Err()))))
		case <-e.closed.Done():
			return unavailable(errClosed)
		case <-tick.C:
			if err != nil && !passing(err) {
				return unavailable(fmt.Errorf("subscribing: %w", err))
			}
		}
	}
}

// unreached adds the addresses of the servers to an error, if the connection can.
func (e *Engine) unreached(err error) error {
	if c, ok := e.conn.(interface{ Unreached(error) error }); ok {
		return c.Unreached(err)
	}
	return err
}

var errEnded = errors.New("the subscription ended")

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// hear takes one message. It runs on the subscription's goroutine and does not
// block.
func (e *Engine) hear(text string) {
	in := words.Words{Rest: text}
	switch in.Next() {
	case "grant":
		owner := in.Next()
		n := news{token: in.Int(), floor: in.Int(), at: in.Int(), life: in.Millis()}
		mode := modeOf(in.Next())
		if !in.Bad && !e.deliver(owner, n) {
			if ks, _, ok := e.named(in.Rest); ok {
				e.giveBack(e.releaseCall(ks, mode, owner, n.token))
			}
		}
	case "refuse":
		owner, limit := in.Next(), in.Next()
		if !in.Bad {
			e.deliver(owner, news{err: fmt.Errorf("%w: the name is in use with a limit of %s; all who share a name must ask for the same limit", driver.ErrInvalid, limit)})
		}
	case "advance":
		after := in.Millis()
		if _, name, ok := e.named(in.Rest); ok && !in.Bad {
			e.lookAfter(name, after)
		}
	case "lost":
		owner, token := in.Next(), in.Int()
		if !in.Bad {
			e.lose(owner, token, in.Rest)
		}
	}
}

// lose tells a holder that its lock was broken.
func (e *Engine) lose(owner string, token int64, reason string) {
	e.mu.Lock()
	h, ok := e.holds[owner]
	if ok = ok && (h.token == token || h.token == 0); ok {
		delete(e.holds, owner)
	}
	e.mu.Unlock()
	if ok && h.lost != nil {
		h.lost(fmt.Errorf("%w: %q was broken: %s", driver.ErrLost, h.name, reason))
	}
}
