package proc

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// envChild is set in the environment of a child.
const envChild = "FENCELOCK_PROC"

// Main serves an engine if this process is a child of [Start]. Call it first in TestMain. In an
// ordinary test run it returns immediately. In a child it serves the engine made by one of kinds,
// with the argument given to Start, until the parent is gone, and exits.
//
// If the engine has a method Close() error, it is closed at the end of its test and must leave
// nothing behind, because its process may be reused by another test. So may that of an engine with a
// method Reusable(), which need not be closed.
func Main(kinds map[string]func(arg string) driver.Engine) {
	if os.Getenv(envChild) == "" {
		return
	}
	serve(kinds, os.Stdin, os.Stdout)
	os.Exit(0)
}

// A child answers the calls of its parent, for one engine at a time.
type child struct {
	kinds  map[string]func(arg string) driver.Engine
	engine driver.Engine  // changed by open, while no call is in progress
	busy   sync.WaitGroup // calls of the engine

	mu    sync.Mutex // guards out, calls, heard
	out   *gob.Encoder
	calls map[int64]context.CancelFunc
	heard map[int64]chan bool // for a callback in progress: whether OnWait panicked in the parent
}

// errPanicked is the value with which a callback panics in the child if it panicked in the parent.
var errPanicked = errors.New("the callback panicked")

// serve answers calls until in ends. Every call has a goroutine of its own, which ends with its
// answer or with the process.
func serve(kinds map[string]func(arg string) driver.Engine, in io.Reader, out io.Writer) {
	c := &child{kinds: kinds, out: gob.NewEncoder(out), calls: map[int64]context.CancelFunc{}, heard: map[int64]chan bool{}}
	d := gob.NewDecoder(in)
	for {
		var q question
		if d.Decode(&q) != nil {
			return
		}
		switch q.Op {
		case opCancel:
			c.cancel(q.ID)
			continue
		case opHeard:
			c.reply(q.ID) <- q.Panic
			continue
		case opClose:
			go func() { c.send(answer{ID: q.ID, Kind: kindAnswer, Errs: []wireError{toWire(c.close())}}) }()
			continue
		}
		ctx := c.begin(q)
		c.busy.Go(func() {
			a := c.survive(ctx, q)
			a.ID, a.Kind = q.ID, kindAnswer
			c.cancel(q.ID)
			c.mu.Lock()
			delete(c.heard, q.ID)
			c.mu.Unlock()
			c.send(a)
		})
	}
}

func (c *child) begin(q question) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	if q.Ended {
		cancel()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[q.ID] = cancel
	return ctx
}

// reply returns the channel for the parent's answer to a kindWaiting.
func (c *child) reply(id int64) chan bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard[id] == nil {
		c.heard[id] = make(chan bool, 1)
	}
	return c.heard[id]
}

func (c *child) cancel(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.calls[id]; cancel != nil {
		cancel()
		delete(c.calls, id)
	}
}

func (c *child) send(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.Encode(a) != nil {
		os.Exit(1) // the parent is gone
	}
}

// survive is answer, but recovers errPanicked.
func (c *child) survive(ctx context.Context, q question) (a answer) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case errPanicked:
			a = answer{Panicked: true}
		default:
			panic(p)
		}
	}()
	return c.answer(ctx, q)
}

// open creates the engine of a test.
func (c *child) open(kind, arg string) error {
	open := c.kinds[kind]
	if open == nil {
		return fmt.Errorf("proc: no engine %q", kind)
	}
	c.engine = open(arg)
	return nil
}

// close closes the engine of a test, and cancels its calls. It returns an error if the process must
// end too.
func (c *child) close() error {
	e, ok := c.engine.(io.Closer)
	if _, reusable := c.engine.(interface{ Reusable() }); !ok && !reusable {
		return driver.ErrUnsupported
	}
	c.mu.Lock()
	for _, cancel := range c.calls {
		cancel()
	}
	c.mu.Unlock()
	var err error
	if ok {
		err = e.Close()
	}
	c.busy.Wait()
	return err
}

// answer makes the call that a question requests.
func (c *child) answer(ctx context.Context, q question) (a answer) {
	err := driver.ErrUnsupported // unless the engine has what it needs
	switch q.Op {
	case opOpen:
		if err = c.open(q.Name, q.Arg); err == nil {
			a.Traits, a.Has = c.engine.Traits(), optional(c.engine)
		}
	case opAcquire:
		a.Grant, err = c.engine.Acquire(ctx, c.request(q))
	case opRenew:
		for _, err := range c.engine.Renew(ctx, q.Leases) {
			a.Errs = append(a.Errs, toWire(err))
		}
		return a
	case opRelease:
		err = c.engine.Release(ctx, q.Leases[0])
	case opList:
		if l, ok := c.engine.(driver.Lister); ok {
			a.List, err = l.List(ctx, q.Query)
		}
	case opResize:
		if r, ok := c.engine.(driver.Resizer); ok {
			err = r.Resize(ctx, q.Name, q.Limit)
		}
	case opShut:
		if e, ok := c.engine.(io.Closer); ok {
			err = e.Close()
		}
	case opTake, opReturn, opReset:
		a.Taken, err = c.rate(ctx, q)
	case opBreak:
		if b, ok := c.engine.(driver.Breaker); ok {
			a.Token, err = b.Break(ctx, q.Name, q.Reason)
		}
	case opOne:
		if b, ok := c.engine.(driver.OwnerBreaker); ok {
			a.Token, err = b.BreakOwner(ctx, q.Name, q.Owner, q.Reason)
		}
	case opAdopt, opDetach:
		a.Grant, err = c.adopt(ctx, q)
	default:
		a, err = c.record(ctx, q)
	}
	a.Errs = []wireError{toWire(err)}
	return a
}

// optional returns the names of the optional interfaces that an engine implements.
func optional(e driver.Engine) (has []string) {
	_, lister := e.(driver.Lister)
	_, breaker := e.(driver.Breaker)
	_, ownerBreaker := e.(driver.OwnerBreaker)
	_, adopter := e.(driver.Adopter)
	_, resizer := e.(driver.Resizer)
	_, registrar := e.(driver.RecordKeeper)
	_, rateLimiter := e.(driver.RateLimiter)
	_, closer := e.(io.Closer)
	for name, ok := range map[string]bool{
		"Lister": lister, "Breaker": breaker, "OwnerBreaker": ownerBreaker, "Adopter": adopter, "Resizer": resizer,
		"RecordKeeper": registrar, "RateLimiter": rateLimiter, "Closer": closer,
	} {
		if ok {
			has = append(has, name)
		}
	}
	return has
}

// adopt makes a call of an Adopter.
func (c *child) adopt(ctx context.Context, q question) (driver.Grant, error) {
	a, ok := c.engine.(driver.Adopter)
	switch {
	case !ok:
		return driver.Grant{}, driver.ErrUnsupported
	case q.Op == opDetach:
		a.Detach(q.Leases[0])
		return driver.Grant{}, nil
	}
	return a.Adopt(ctx, q.Leases[0], c.request(q))
}

// rate makes a call of a RateLimiter.
func (c *child) rate(ctx context.Context, q question) (driver.RateTaken, error) {
	r, ok := c.engine.(driver.RateLimiter)
	switch {
	case !ok:
		return driver.RateTaken{}, driver.ErrUnsupported
	case q.Op == opReturn:
		return driver.RateTaken{}, r.ReturnRate(ctx, q.Take, q.Taken)
	case q.Op == opReset:
		return driver.RateTaken{}, r.ResetRate(ctx, q.Name)
	}
	return r.TakeRate(ctx, q.Take)
}

// request adds callbacks to a request that are forwarded to the parent.
func (c *child) request(q question) driver.Request {
	w := q.Request
	r := w.Request
	if w.Lost {
		r.OnLost = func(cause error) {
			go c.send(answer{ID: q.ID, Kind: kindLost, Errs: []wireError{toWire(cause)}})
		}
	}
	if w.Waiting {
		r.OnWait = func(i driver.WaitInfo) {
			why := toWire(i.Trouble)
			i.Trouble = nil
			c.send(answer{ID: q.ID, Kind: kindWaiting, Info: i, Why: why})
			if <-c.reply(q.ID) {
				panic(errPanicked)
			}
		}
	}
	return r
}
