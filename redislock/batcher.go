package redislock

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

const (
	// maxInFlight calls are under way before operations wait for one another: one that
	// the server works on, one on its way there and one on its way back.
	maxInFlight = 3
	// maxBatch operations go into one script, so that it does not block the server.
	maxBatch = 64
	// batchDelay is how long an operation waits for a call to come back, for the sake
	// of networks that take longer.
	batchDelay = time.Millisecond
)

// batcher lets operations that come while others are under way wait for these, and
// then go together: the cost of a script is that of its call, for the most part.
// An operation that is alone does not wait.
type batcher struct {
	*client
	delay   time.Duration
	batches atomic.Int64 // so far

	mu       sync.Mutex // guards all below
	inFlight int
	waiting  []*pendingOp
	timerSet bool // flushAfterDelay will be called
}

// pendingOp is an acquire or a release of the common kind.
type pendingOp struct {
	letter byte     // of batch.lua
	lock   string   // its key
	args   []string // of batch.lua
	limit  time.Duration
	done   chan opResult // gets the answer, once
}

// opResult is what became of a batched operation: a letter of batch.lua and the
// server's time, or an error.
type opResult struct {
	letter byte
	now    string
	late   int64 // until when an acquire may still be served
	err    error
}

// refused is the letter of an operation whose script the server refused, perhaps for
// the sake of another one.
const refused = 'x'

// canBatch reports whether operations may share a script. On a Cluster their keys
// lie in different slots, and replicas are waited for call by call.
func (b *batcher) canBatch() bool { return !b.cluster() && b.cfg.MinReplicas == 0 }

// tryStart lets a call go at once if few are under way, and finishCall must follow it.
func (b *batcher) tryStart() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inFlight >= maxInFlight {
		return false
	}
	b.inFlight++
	return true
}

// send does an operation together with others.
func (b *batcher) send(ctx context.Context, op *pendingOp) opResult {
	op.done = make(chan opResult, 1)
	if b.queue(op) {
		b.flushAfterDelay()
	}
	ctx, cancel := redisconn.Timed(ctx)
	defer cancel()
	select {
	case v := <-op.done:
		return v
	case <-ctx.Done():
		var late int64
		if !b.remove(op) {
			late = b.clock.ever(op.limit)
		}
		return opResult{err: b.unreached(ctx.Err()), late: late}
	}
}

// queue lets an operation wait for a call to come back, until flushAfterDelay. It reports
// whether there is nothing to wait for: so many wait that they fill a script, or
// all calls have come back meanwhile.
func (b *batcher) queue(op *pendingOp) (now bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, op)
	now = len(b.waiting) >= maxBatch || b.inFlight == 0
	if !now && !b.timerSet {
		b.timerSet = true
		time.AfterFunc(b.delay, b.flushAfterDelay)
	}
	return now
}

// remove takes an operation away, and reports whether it was not sent yet.
func (b *batcher) remove(op *pendingOp) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.waiting)
	b.waiting = slices.DeleteFunc(b.waiting, func(o *pendingOp) bool { return o == op })
	return len(b.waiting) < n
}

// next returns the operations that go together now; without any, the call is over.
func (b *batcher) next() []*pendingOp {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), maxBatch)
	if n == 0 {
		b.inFlight--
		return nil
	}
	batch := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	return batch
}

// flushAfterDelay lets those who wait go although no call has come back.
func (b *batcher) flushAfterDelay() {
	b.mu.Lock()
	b.timerSet = false
	b.inFlight++
	b.mu.Unlock()
	b.finishCall()
}

// finishCall ends a call that went at once, or lets it go on for those who wait.
func (b *batcher) finishCall() {
	if batch := b.next(); batch != nil {
		b.runBatches(batch)
	}
}

// runBatches does batch after batch until nobody waits.
func (b *batcher) runBatches(batch []*pendingOp) {
	task := func() { // ends when nobody waits; each batch has an attempt limit
		for ; batch != nil; batch = b.next() {
			b.execBatch(batch)
		}
	}
	if !b.tasks.Go(task) {
		task()
	}
}

// execBatch does a batch of operations in one script, and tells each what became of it.
func (b *batcher) execBatch(batch []*pendingOp) {
	c := redisconn.Call{Script: batchScript, Keys: make([]string, len(batch)), Args: make([]string, 5, 5+3*len(batch))}
	letters, limit := make([]byte, len(batch)), batch[0].limit
	for i, op := range batch {
		letters[i], c.Keys[i] = op.letter, op.lock
		c.Args = append(c.Args, op.args...)
		limit = min(limit, op.limit)
	}
	until, late := b.until(context.Background(), limit)
	which := b.id + strconv.FormatInt(b.batches.Add(1), 36)
	c.Args[0], c.Args[1], c.Args[2], c.Args[3], c.Args[4] = b.base(), b.retention, until, which, string(letters)
	text, err := b.eval(redisconn.WithDeadline(context.Background(), limit), c)
	in := redisfmt.Words{Rest: text}
	now := in.Next()
	if err == nil && len(in.Rest) != len(batch) {
		err = malformed(text)
	}
	_, answered := redisconn.Refused(err)
	for i, op := range batch {
		switch {
		case err == nil:
			op.done <- opResult{letter: in.Rest[i], now: now}
		case answered:
			op.done <- opResult{letter: refused}
		default:
			op.done <- opResult{err: err, late: late}
		}
	}
}
