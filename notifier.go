package fencelock

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// maxNotices is how many notices may wait to be told: more than the locks that one
// process is made for, all of which may be lost at once.
const maxNotices = 1 << 17

// notifier tells the logger and the tracer what happened to locks: one thing after
// the other, on a goroutine of its own. Whoever has something to tell never waits,
// so a logger that blocks withholds nothing from a holder. What comes while too much
// waits is left out, and counted.
type notifier struct {
	logger *slog.Logger
	logs   bool // there is a logger
	tracer *Tracer
	max    int

	mu      sync.Mutex // guards queue, running, left
	queue   []func()
	running bool // run is at work
	left    int  // notices left out since the logger was last told
}

func newNotifier(cfg Config, most int) *notifier {
	logs := cfg.Logger.Handler() != slog.DiscardHandler // which levels is asked by run: that may block too
	return &notifier{logger: cfg.Logger, logs: logs, tracer: cfg.Tracer, max: most}
}

// renewalFailed tells the logger that one lease was not renewed. ctx knows the lock.
func (n *notifier) renewalFailed(ctx context.Context, lease driver.Lease, err error) {
	if n.logs {
		n.tell(func() {
			n.logger.WarnContext(ctx, "renewal failed", "name", lease.Name, "token", lease.Token, "error", err)
		})
	}
}

// renewEnd tells the tracer that a batch has ended.
func (n *notifier) renewEnd(ctx context.Context, data TraceRenewEnd) {
	if n.tracer.RenewEnd != nil {
		n.tell(func() { n.tracer.RenewEnd(ctx, data) })
	}
}

// lost tells the logger and the tracer of a loss. ctx knows the lock.
func (n *notifier) lost(ctx context.Context, mode driver.Mode, loss *LostError, held time.Duration) {
	if !n.logs && n.tracer.HoldEnd == nil {
		return
	}
	n.tell(func() {
		n.logger.WarnContext(ctx, "lock lost", "name", loss.Name, "token", loss.Token, "held", held, "error", loss.Reason)
		end(ctx, n.tracer.HoldEnd, TraceHoldEnd{TraceLock: TraceLock{Name: loss.Name, Mode: mode, Token: loss.Token}, Held: held, Lost: loss})
	})
}

// tell has a notice told after those before it, and returns at once.
func (n *notifier) tell(notice func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) >= n.max {
		n.left++
		return
	}
	n.queue = append(n.queue, notice)
	if !n.running {
		n.running = true
		go n.run() // ends when nothing is left to tell
	}
}

// run tells everything there is.
func (n *notifier) run() {
	done := false
	defer unless(&done, func() { go n.run() }) // a hook ended the goroutine; ends as this one would
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
		return func() { n.logger.Warn("notices left out: the logger or a tracer's hook blocks", "count", left) }
	}
	n.running = false
	return nil
}
