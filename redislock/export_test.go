package redislock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// The scripts, for tests that hold back a certain call.
var (
	AcquireScript  = acquireScript
	TouchScript    = touchScript
	TouchAllScript = touchAllScript
	ReleaseScript  = releaseScript
	LeaveScript    = leaveScript
	ConfirmScript  = confirmScript
	RenewScript    = renewScript

	TakeRateScript   = takeRateScript
	ResetRateScript  = resetRateScript
	ReturnRateScript = returnRateScript
)

// GrantLife is how long an unconfirmed hand-over lasts.
const GrantLife = grantLife

// ID returns what the engine's channel is named after.
func (e *Engine) ID() string { return e.client.id }

// Listens reports whether the engine's subscription stands, as far as it knows.
func (e *Engine) Listens() bool {
	e.acquirer.listener.start()
	return e.acquirer.listener.ready()
}

// Traces returns how many requests, groups of waiters and holds the engine
// remembers.
func (e *Engine) Traces() (requests, groups, holds int) {
	e.queue.mu.Lock()
	defer e.queue.mu.Unlock()
	return len(e.queue.waiters), len(e.queue.groups), len(e.queue.holds)
}

// Queued returns how many requests for a name know that they are in the queue.
func (e *Engine) Queued(name string) (n int) {
	e.queue.mu.Lock()
	defer e.queue.mu.Unlock()
	if g := e.queue.groups[name]; g != nil {
		for _, w := range g.waiters {
			if w.queued {
				n++
			}
		}
	}
	return n
}

// LockKey returns the key of a name.
func (e *Engine) LockKey(name string) (string, error) { return e.client.lockKey(name) }

// MaxFlights is how many calls of the common kind are under way at once.
const MaxFlights = maxInFlight

// GatherScript does what waited for them.
var GatherScript = batchScript

// Gather makes operations wait until a call has come back, however long it takes.
func (e *Engine) Gather() { e.batcher.delay = time.Hour }

// GatherAsUsual undoes Gather.
func (e *Engine) GatherAsUsual() { e.batcher.delay = batchDelay }

// Waiting returns how many operations wait to go together.
func (e *Engine) Waiting() int {
	e.batcher.mu.Lock()
	defer e.batcher.mu.Unlock()
	return len(e.batcher.waiting)
}

// Subscribed blocks until the subscription stands.
func (e *Engine) Subscribed(ctx context.Context) error {
	e.acquirer.listener.start()
	return e.acquirer.listener.subscribed(ctx)
}

// Doubt makes the next acquire look at the server again.
func (e *Engine) Doubt() { e.acquirer.server.invalidate() }

// Mistake makes the engine wrong about the server's clock.
func (e *Engine) Mistake(by time.Duration) {
	e.client.clock.mu.Lock()
	defer e.client.clock.mu.Unlock()
	e.client.clock.last = clockSample{sent: time.Now(), server: e.client.clock.last.latest(time.Now()) + by.Microseconds()}
}

// AdoptScript passes an acquisition on.
var AdoptScript = adoptScript

// BreakScript ends every acquisition of a name.
var BreakScript = breakScript

// Until is until when a request may be served that has so long, by a clock whose sample is
// of so long ago; 0 if there is no telling.
func Until(age, limit time.Duration) (after time.Duration) {
	const server = 1_700_000_000_000_000
	c := &clock{last: clockSample{sent: time.Now().Add(-age), server: server}}
	if at := c.after(limit); at > 0 {
		return time.Duration(at-server) * time.Microsecond
	}
	return 0
}

// The scripts of the index.
var (
	IndexScript     = indexScript
	IndexDropScript = indexDropScript
)

// RecordScript reads and writes records.
var RecordScript = recordScript

// OwnTime returns the two directions of a new client's own time.
func OwnTime() (at func(int64) time.Time, stamp func(time.Time) int64) {
	c := newClient(redisconn.Refusing(errClosed), nil)
	return c.own.at, func(t time.Time) int64 { return redisfmt.Number(c.own.stamp(t)) }
}
