package redlock

import (
	"context"
	"sync"
	"sync/atomic"
)

// workerPool runs functions on goroutines that stay for the next one. A request to a node
// needs a deep stack, and a new goroutine would have to grow one, which costs as much
// as the request.
type workerPool struct {
	sync.WaitGroup // counts those at work, those who stay, and whatever else Close waits for

	closed context.Context // nobody stays any more
	work   chan func()     // received by those who stay
	idle   atomic.Int32    // how many those are
}

// mostIdle is how many stay at most.
const mostIdle = 32

// run runs fn soon, without blocking.
func (c *workerPool) run(fn func()) {
	select {
	case c.work <- fn:
	default:
		c.Go(func() { // ends when it is not needed, or closed and done
			for ; fn != nil; fn = c.next() {
				fn()
			}
		})
	}
}

// next waits for something to do, and returns nil when there will be nothing or
// enough others wait.
func (c *workerPool) next() func() {
	defer c.idle.Add(-1)
	if c.idle.Add(1) > mostIdle {
		return nil
	}
	select {
	case fn := <-c.work:
		return fn
	case <-c.closed.Done():
		return nil
	}
}
