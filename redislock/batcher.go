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
	// maxInFlight is how many calls run before operations start to queue: one that the server is
	// executing, one on its way there and one on its way back.
	maxInFlight = 3
	// maxBatch is the most operations in one script, so that a script does not block the server for
	// long.
	maxBatch = 64
	// batchDelay is the longest time that an operation waits for a running call to return. It
	// bounds the delay on slow networks.
	batchDelay = time.Millisecond
)

// batcher combines concurrent operations into one script, since most of a script's cost is that of
// its call. Operations that start while maxInFlight calls are running wait and are sent together.
// An operation on an idle engine does not wait.
type batcher struct {
	client  *client
	delay   time.Duration
	batches atomic.Int64 // sent so far; makes each batch's id unique

	mu       sync.Mutex // guards all below
	inFlight int
	waiting  []*pendingOp
	timerSet bool // flush is scheduled
}

// pendingOp is an exclusive acquire or release without special options.
type pendingOp struct {
	letter byte     // 'a' acquire or 'r' release, see batch.lua
	lock   string   // the lock's key
	args   []string // arguments for batch.lua
	limit  time.Duration
	done   chan opResult // receives the result, once
}

// opResult is the result of a batched operation: the letter that batch.lua returned and the
// server's time, or an error.
type opResult struct {
	letter byte
	now    string
	late   int64 // server time until which an unanswered acquire may still be served
	err    error
}

// refused is the letter of an operation in a script that the server refused, perhaps because of
// another operation in it.
const refused = 'x'

// canBatch reports whether operations may share a script. On a Cluster their keys are in different
// slots, and with MinReplicas each call waits for its own replicas.
func (b *batcher) canBatch() bool { return !b.client.cluster() && b.client.cfg.MinReplicas == 0 }

// tryStart claims a slot for a direct call and reports whether one was free. finishCall must
// follow.
func (b *batcher) tryStart() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inFlight >= maxInFlight {
		return false
	}
	b.inFlight++
	return true
}

// send runs an operation in a batch and waits for its result.
func (b *batcher) send(ctx context.Context, op *pendingOp) opResult {
	op.done = make(chan opResult, 1)
	if b.queue(op) {
		b.flush()
	}
	ctx, cancel := redisconn.Timed(ctx)
	defer cancel()
	select {
	case v := <-op.done:
		return v
	case <-ctx.Done():
		var late int64
		if !b.remove(op) {
			late = b.client.clock.ever(op.limit)
		}
		return opResult{err: b.client.unreached(ctx.Err()), late: late}
	}
}

// queue adds an operation to the next batch and starts the timer. It reports whether the batch
// should be sent now, because it is full or because no call is running any more.
func (b *batcher) queue(op *pendingOp) (now bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, op)
	now = len(b.waiting) >= maxBatch || b.inFlight == 0
	if !now && !b.timerSet {
		b.timerSet = true
		time.AfterFunc(b.delay, b.flush)
	}
	return now
}

// remove drops an operation from the queue and reports whether it had not been sent yet.
func (b *batcher) remove(op *pendingOp) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.waiting)
	b.waiting = slices.DeleteFunc(b.waiting, func(o *pendingOp) bool { return o == op })
	return len(b.waiting) < n
}

// next returns the next batch. If there is none, it frees the slot and returns nil.
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

// flush sends the queued operations although no call has returned.
func (b *batcher) flush() {
	b.mu.Lock()
	b.timerSet = false
	b.inFlight++
	b.mu.Unlock()
	b.finishCall()
}

// finishCall frees the slot of a direct call, or uses it to run the next batch.
func (b *batcher) finishCall() {
	if batch := b.next(); batch != nil {
		b.runBatches(batch)
	}
}

// runBatches executes batches until the queue is empty.
func (b *batcher) runBatches(batch []*pendingOp) {
	task := func() { // ends when the queue is empty; each batch has an attempt limit
		for ; batch != nil; batch = b.next() {
			b.execBatch(batch)
		}
	}
	if !b.client.tasks.Go(task) {
		task()
	}
}

// execBatch runs a batch of operations in one script and delivers each result.
func (b *batcher) execBatch(batch []*pendingOp) {
	c := redisconn.Call{Script: batchScript, Keys: make([]string, len(batch)), Args: make([]string, 5, 5+3*len(batch))}
	letters, limit := make([]byte, len(batch)), batch[0].limit
	for i, op := range batch {
		letters[i], c.Keys[i] = op.letter, op.lock
		c.Args = append(c.Args, op.args...)
		limit = min(limit, op.limit)
	}
	until, late := b.client.until(context.Background(), limit)
	which := b.client.id + strconv.FormatInt(b.batches.Add(1), 36)
	c.Args[0], c.Args[1], c.Args[2], c.Args[3], c.Args[4] = b.client.base(), b.client.retention, until, which, string(letters)
	text, err := b.client.eval(redisconn.WithDeadline(context.Background(), limit), c)
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
