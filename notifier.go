package fencelock

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// maxNotices is the capacity of the queue. It exceeds the number of locks that one process is
// designed for, all of which may be lost at once.
const maxNotices = 1 << 17

// notifier calls the logger and the tracer one notice after the other, on its own goroutine.
// Senders never block, so a logger that blocks cannot delay a holder. Notices beyond the capacity
// are dropped and counted.
type notifier struct {
	logger   *slog.Logger
	logs     bool // whether there is a logger
	tracer   *Tracer
	capacity int

	mu      sync.Mutex // guards queue, running, left
	queue   []func()
	running bool // whether run is active
	left    int  // notices dropped since the last log entry about it
}

func newNotifier(cfg Config, capacity int) *notifier {
	logs := cfg.Logger.Handler() != slog.DiscardHandler // do not call Enabled here: it may block, and run calls it
	return &notifier{logger: cfg.Logger, logs: logs, tracer: cfg.Tracer, capacity: capacity}
}

// renewalFailed logs that a lease was not renewed. ctx has the lock's values.
func (n *notifier) renewalFailed(ctx context.Context, lease driver.Lease, err error) {
	if n.logs {
		n.tell(func() {
			n.logger.WarnContext(ctx, "renewal failed", "name", lease.Name, "token", lease.Token, "error", err)
		})
	}
}

// renewEnd calls the tracer at the end of a batch.
func (n *notifier) renewEnd(ctx context.Context, data TraceRenewEnd) {
	if n.tracer.RenewEnd != nil {
		n.tell(func() { n.tracer.RenewEnd(ctx, data) })
	}
}

// lost reports a loss to the logger and the tracer. ctx has the lock's values.
func (n *notifier) lost(ctx context.Context, lock TraceLock, loss *LostError, held time.Duration) {
	if !n.logs && n.tracer.HoldEnd == nil {
		return
	}
	n.tell(func() {
		n.logger.WarnContext(ctx, "lock lost", "name", loss.Name, "token", loss.Token, "held", held, "error", loss.Reason)
		end(ctx, n.tracer.HoldEnd, TraceHoldEnd{TraceLock: lock, Held: held, Lost: loss})
	})
}

// tell queues a notice and returns at once.
func (n *notifier) tell(notice func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) >= n.capacity {
		n.left++
		return
	}
	n.queue = append(n.queue, notice)
	if !n.running {
		n.running = true
		go n.run() // ends when the queue is empty
	}
}

// run handles notices until the queue is empty.
func (n *notifier) run() {
	done := false
	defer undoUnless(&done, func() { go n.run() }) // a hook ended this goroutine with runtime.Goexit: continue on another
	for notice := n.next(); notice != nil; notice = n.next() {
		notice()
	}
	done = true
}

// next takes the first notice off the queue; nil if there is none.
func (n *notifier) next() func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) > 0 {
		notice := n.queue[0]
		n.queue[0] = nil
		n.queue = n.queue[1:]
		return notice
	}
	n.queue = nil
	if left := n.left; left > 0 {
		n.left = 0
		return func() {
			n.logger.Warn("log and trace notices dropped: the logger or a tracer hook blocks", "count", left)
		}
	}
	n.running = false
	return nil
}
