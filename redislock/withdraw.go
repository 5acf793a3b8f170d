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
	// withdrawPatience is how long a caller waits for its withdrawal to finish.
	withdrawPatience = time.Second
	// silentPatience is the same for a request that the server has not answered either.
	silentPatience = 100 * time.Millisecond
	// withdrawLimit is how long a withdrawal is retried. By then a grant that was not taken has
	// expired, and so has the request's place in the queue.
	withdrawLimit = time.Minute
	// closeLimit is how long the last attempt may run after Close.
	closeLimit = 500 * time.Millisecond
)

// withdraw removes a request from the queue or releases its grant. It ignores the caller's context,
// blocks for at most patience and then continues in the background. Attempts of the request that
// reach the server after the withdrawal have no effect.
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

// moving ends the reply to a release that could not hand the lock over, because its slot is being
// moved.
const moving = "moving"

// withdrawLoop repeats a withdrawal, or the release of a grant, until the server has executed it
// completely, for at most the given time. Each attempt has the time limit of a lock with this TTL.
func (c *client) withdrawLoop(call redisconn.Call, ttl, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	defer context.AfterFunc(c.closed, func() { // ends after closeLimit
		retry.Sleep(ctx, closeLimit)
		cancel()
	})()
	for pause := newBackoff(); ctx.Err() == nil; pause.Wait(c.closed) {
		limited, cancel := context.WithTimeout(ctx, attemptLimit(ttl))
		text, err := c.eval(limited, call)
		cancel()
		_, rest, _ := strings.Cut(text, " ")
		c.unpublished(call.Keys[0], rest)
		if err == nil && rest != moving || err != nil && !passing(err) || c.closed.Err() != nil {
			return
		}
	}
}
