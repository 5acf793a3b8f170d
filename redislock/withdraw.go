package redislock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/retry"
)

const (
	// withdrawPatience is how long a caller waits for its withdrawal.
	withdrawPatience = time.Second
	// withdrawLimit is how long it is tried: a grant nobody took has ended by
	// then, and so has the place in the queue.
	withdrawLimit = time.Minute
	// closeLimit is how long the last try goes on after Close.
	closeLimit = 500 * time.Millisecond
)

// withdraw takes a request out of the queue, or gives its grant back, whatever
// has become of it. It does not depend on the caller's context, waits for
// patience at most, and goes on in the background. A try of the request that
// reaches the server after the withdrawal is not served.
func (acq *acquirer) withdraw(w *waiter, patience time.Duration) {
	acq.queue.unregister(w)
	args := []string{w.owner, w.desc}
	if w.late > 0 {
		args = append(args, strconv.FormatInt(w.late, 10))
	}
	c := acq.call(leaveScript, w.lock, args...)
	gone := make(chan struct{})
	task := func() { // ends when the server has answered, after withdrawLimit, or soon after Close
		acq.withdrawLoop(c, w.req.TTL, withdrawLimit)
		close(gone)
	}
	if !acq.tasks.Go(task) {
		task()
		return
	}
	retry.Nap(context.Background(), patience, gone)
}

// moving ends the answer to a release that let nobody in, since the slot moves.
const moving = " moving"

// withdrawLoop sends a withdrawal, or the release of a grant, until the server has done all
// of it, for so long at most. Each try has the time that one for a lock of this TTL has.
func (c *client) withdrawLoop(call redisconn.Call, ttl, most time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	defer context.AfterFunc(c.closed, func() { // ends after closeLimit
		retry.Sleep(ctx, closeLimit)
		cancel()
	})()
	for pause := newBackoff(); ctx.Err() == nil; pause.Wait(c.closed) {
		limited, cancel := context.WithTimeout(ctx, attemptLimit(ttl))
		text, err := c.eval(limited, call)
		cancel()
		if err == nil && !strings.HasSuffix(text, moving) || err != nil && !passing(err) || c.closed.Err() != nil {
			return
		}
	}
}
