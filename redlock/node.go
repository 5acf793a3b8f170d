package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/redislock"
)

// node is one master.
type node struct {
	engine *Engine
	index  int
	conn   redislock.Conn
	label  string // its name or number, for messages

	fit   atomic.Bool            // it was found to be what redlock needs
	knew  atomic.Bool            // it was once
	clock atomic.Pointer[sample] // what its clock showed last
	who   atomic.Uint64          // which server answered last; 0 means unknown
	out   atomic.Pointer[outage] // why it is left out; nil while it is asked
	ear   atomic.Bool            // the subscription stands

	flights atomic.Int32 // requests under way

	mu      sync.Mutex // guards all below
	reviver bool       // a goroutine waits for the node's return
	orphans map[string]orphan
}

// outage is why a node is left out: its requests fail at once, until it is back.
type outage struct {
	cause error
	unfit bool // it is the wrong kind of server, and was never another
}

// notAsked is the error of a request that was not sent.
type notAsked struct{ error }

func (n notAsked) Unwrap() error { return n.error }

// maxFlights bounds what piles up before a node that is slow.
const maxFlights = 10_000

var errBusy = errors.New("too many requests are unanswered")

// ask makes calls of the node. Errors other than the server's own words mean that
// nobody knows whether it will run them; it is left out then until it answers.
func (n *node) ask(ctx context.Context, calls ...redislock.Call) []redislock.Reply {
	if o := n.out.Load(); o != nil {
		return failures(len(calls), notAsked{o.cause})
	}
	if !n.fit.Load() {
		if err := n.probe(ctx); err != nil {
			return failures(len(calls), notAsked{err})
		}
	}
	defer n.flights.Add(-1)
	if n.flights.Add(1) > maxFlights {
		return failures(len(calls), notAsked{errBusy})
	}
	replies := n.conn.Eval(ctx, calls)
	for _, r := range replies {
		if unknown(r.Err) {
			n.leaveOut(fmt.Errorf("left out until it answers: %w", r.Err))
			break
		}
	}
	return replies
}

// unknown reports whether a call that ended with err may run nevertheless.
func unknown(err error) bool {
	if err == nil {
		return false
	}
	_, words := errors.AsType[redislock.ServerError](err)
	_, unsent := errors.AsType[notAsked](err)
	return !words && !unsent
}

func failures(n int, err error) []redislock.Reply {
	all := make([]redislock.Reply, n)
	for i := range all {
		all[i].Err = err
	}
	return all
}

// leaveOut makes requests of the node fail at once, until it has come back.
func (n *node) leaveOut(cause error) {
	_, unfit := errors.AsType[badNodeError](cause)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.out.Store(&outage{cause, unfit && !n.knew.Load()})
	n.wake()
}

// wake begins to look whether the node answers, unless somebody does. The caller
// holds mu.
func (n *node) wake() {
	if !n.reviver {
		n.reviver = true
		n.engine.tasks.Go(n.revive) // ends with Close, or when the node is back
	}
}

// revive waits until the node answers, gives back what it may have granted
// meanwhile, and lets it vote again.
func (n *node) revive() {
	closed := n.engine.closed
	for pause := retry.NewBackoff(20*time.Millisecond, time.Second); closed.Err() == nil; pause.Wait(closed) {
		ctx, cancel := context.WithTimeout(closed, reviveLimit)
		err := n.look(ctx)
		if err == nil {
			err = n.releaseOrphans(ctx)
		}
		cancel()
		if err == nil && n.back() {
			return
		}
		if unknown(err) || n.out.Load() != nil {
			n.leaveOut(err)
		}
	}
}

// back lets the node vote again, unless another orphan has come meanwhile.
func (n *node) back() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.out.Store(nil)
	n.reviver = len(n.orphans) > 0
	return !n.reviver
}

// look asks the node for any sign of life, and what it is if that is unknown.
func (n *node) look(ctx context.Context) error {
	if !n.fit.Load() {
		return n.probe(ctx)
	}
	answers, err := n.conn.Each(ctx, "PING")
	if err == nil && len(answers) > 0 && unknown(answers[0].Err) {
		err = answers[0].Err
	}
	return err
}

// reply is what one node said.
type reply struct {
	node int
	sent time.Time // before it was asked
	redislock.Reply
}

// broadcast puts a question to nodes at once, without blocking. The answers go to
// answers, which has room for them.
func (e *Engine) broadcast(nodes []*node, limit time.Duration, answers chan<- reply, ask func(context.Context, *node) redislock.Reply) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	open := new(atomic.Int32)
	open.Store(int32(len(nodes)))
	answered := func() {
		if open.Add(-1) == 0 {
			cancel()
		}
	}
	for _, n := range nodes {
		e.tasks.run(func() { // ends when the node has answered, or with the limit
			sent := time.Now()
			answers <- reply{n.index, sent, ask(ctx, n)}
			answered()
		})
	}
}

// asking is a call as a question for spread.
func asking(c redislock.Call) func(context.Context, *node) redislock.Reply {
	return func(ctx context.Context, n *node) redislock.Reply { return n.ask(ctx, c)[0] }
}

func (e *Engine) call(s *redislock.Script, name string, args ...string) redislock.Call {
	return redislock.Call{Script: s, Keys: e.keysOf(name), Args: args}
}

// Limits of requests that nobody's lease depends on. They are variables for tests on
// machines that are slow.
var (
	meetLimit   = time.Second     // of asking all nodes who they are
	callLimit   = 2 * time.Second // of a request to one
	reviveLimit = 2 * time.Second // of a look whether it is back; a frozen one answers when it is thawed
	listLimit   = 10 * time.Second
)

// unavailable says that there is no answer because of err.
func unavailable(err error) error { return fmt.Errorf("%w: %w", driver.ErrUnavailable, err) }
