package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
)

// client is what all parts of an engine share: its settings, its scripts, its keys and
// its goroutines. It knows no nodes and no locks.
type client struct {
	*tasks
	cfg Config
	lua scripts
}

// call makes a call of a script that is about one name. The scripts get the lock's key
// alone and make the names of its companions themselves, for the sake of speed: a node
// of redlock is no part of a cluster.
func (c *client) call(s *redisconn.Script, name string, args ...string) redisconn.Call {
	return redisconn.Call{Script: s, Keys: []string{c.cfg.Prefix + "lock:" + name}, Args: args}
}

// companions are the prefixes of the keys beside the lock's own.
var companions = [...]string{"fence:", "shared:", "tokens:", "about:", "queue:", "callers:"}

// nameOf returns the name whose lock, or whose companion, is at key.
func (c *client) nameOf(key string) (string, bool) {
	for _, prefix := range companions {
		if inner, ok := strings.CutPrefix(key, prefix+"{"); ok && strings.HasSuffix(inner, "}") {
			key = inner[:len(inner)-1]
			break
		}
	}
	name, ok := strings.CutPrefix(key, c.cfg.Prefix+"lock:")
	return name, ok && driver.CheckName(name) == nil
}

// Limits of requests that nobody's lease depends on. They are variables for tests on
// machines that are slow.
var (
	meetLimit   = time.Second     // of asking all nodes who they are
	callLimit   = 2 * time.Second // of a request to one
	reviveLimit = 2 * time.Second // of a look whether it is back; a frozen one answers when it is thawed
	listLimit   = 10 * time.Second
)

// tasks are the calls of an engine that are under way, and the goroutines that they
// started: Close waits for all of them. A goroutine may outlive its call for as long as
// a request to a node may take.
type tasks struct {
	closed context.Context // ends with Close
	end    context.CancelFunc
	group  sync.WaitGroup // counts calls, and goroutines, also those that stay
	work   chan func()    // received by goroutines that stay
	idle   atomic.Int32   // how many of them have nothing to do

	mu   sync.Mutex // guards done, and that group grows from zero before it alone
	done bool       // no call may begin any more
}

var errClosed = errors.New("the engine was closed")

// begin begins a call of the engine, unless it is closed. Without an error the caller
// says leave at the end.
func (t *tasks) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, errClosed)
	}
	t.group.Add(1)
	return nil
}

func (t *tasks) leave() { t.group.Done() }

// spawn runs a task on a goroutine of its own. It is for calls under way, and for what
// they started: group is not zero then, so that Close cannot have returned.
func (t *tasks) spawn(task func()) { t.group.Go(task) }

// mostIdle is how many goroutines stay at most.
const mostIdle = 32

// run runs fn soon, without blocking, on a goroutine that stays for the next one. A
// request to a node needs a deep stack, and a new goroutine would have to grow one, which
// costs as much as the request. As spawn, it is for calls under way.
func (t *tasks) run(fn func()) {
	select {
	case t.work <- fn:
	default:
		t.spawn(func() { // ends when it is not needed, or closed and done
			for ; fn != nil; fn = t.nextWork() {
				fn()
			}
		})
	}
}

// nextWork waits for something to do, and returns nil when there will be nothing or
// enough others wait.
func (t *tasks) nextWork() func() {
	defer t.idle.Add(-1)
	if t.idle.Add(1) > mostIdle {
		return nil
	}
	select {
	case fn := <-t.work:
		return fn
	case <-t.closed.Done():
		return nil
	}
}

// shut lets no call begin any more, ends closed, and waits for all that is under way.
func (t *tasks) shut() {
	t.mu.Lock()
	t.done = true
	t.mu.Unlock()
	t.end()
	t.group.Wait()
}
