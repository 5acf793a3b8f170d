package recordlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/internal/tasks"
)

// Config has the settings of an Engine. All clients of the same records must use the same Prefix.
type Config struct {
	// Name is the name of the engine, such as "mariadb". Empty means "records".
	Name string
	// Prefix is the prefix of the keys of locks among the other records. Empty means
	// "fencelock.lock/". Records of programs must not begin with it.
	Prefix string
	// MinPoll and MaxPoll are the shortest and the longest pause between two reads of the first
	// waiter in the queue. 0 means 10 ms and 250 ms. The pause grows while nothing changes, and it is
	// longer for waiters behind the first. They are not used if the records are a driver.Awaiter.
	MinPoll, MaxPoll time.Duration
	// Requests is the maximum number of concurrent requests to the store. Renewals and releases have
	// as many of their own. 0 means 16.
	Requests int
}

// Engine keeps locks in records. It is safe for concurrent use. Pass it to fencelock.New, which
// renews leases.
type Engine struct {
	records     driver.Records
	awaiter     driver.Awaiter // nil if the records have none
	cfg         Config
	clock       storeClock
	tasks       *tasks.Group  // the goroutines of workers
	slots       chan struct{} // has a value for each request to the store
	urgentSlots chan struct{} // the same for renewals and releases

	mu      sync.Mutex // guards workers
	workers map[string]*worker
	swept   retry.Period
}

var _ interface {
	driver.Engine
	driver.Lister
	driver.Breaker
	driver.OwnerBreaker
	driver.Resizer
	driver.Adopter
	driver.Inspector
	driver.RecordKeeper
} = (*Engine)(nil)

var errClosed = fmt.Errorf("%w: the engine is closed", driver.ErrUnavailable)

// minTTL is the shortest TTL: a renewal takes two requests, and more if it meets others.
const minTTL = 500 * time.Millisecond

// New returns an engine on records; cfg may be nil. It does no I/O.
func New(records driver.Records, cfg *Config) *Engine {
	e := &Engine{records: records, tasks: tasks.New(), workers: map[string]*worker{}}
	if cfg != nil {
		e.cfg = *cfg
	}
	e.cfg.Name = cmp.Or(e.cfg.Name, "records")
	e.cfg.Prefix = cmp.Or(e.cfg.Prefix, "fencelock.lock/")
	e.cfg.MinPoll = cmp.Or(e.cfg.MinPoll, 10*time.Millisecond)
	e.cfg.MaxPoll = cmp.Or(e.cfg.MaxPoll, 250*time.Millisecond)
	e.cfg.Requests = cmp.Or(e.cfg.Requests, 16)
	e.awaiter, _ = records.(driver.Awaiter)
	e.slots, e.urgentSlots = make(chan struct{}, e.cfg.Requests), make(chan struct{}, e.cfg.Requests)
	return e
}

// Close ends all requests in progress with ErrUnavailable. It grants nothing, and takes up to a second to
// remove from the records what the store has of requests. What is held stays held until its lease ends. The
// records stay open.
func (e *Engine) Close() error {
	e.tasks.Refuse()
	e.mu.Lock()
	for _, d := range e.workers {
		d.notify()
	}
	e.mu.Unlock()
	e.tasks.CloseAfter(leaveLimit)
	return nil
}

// Traits returns what the engine supports. It does no I/O.
func (e *Engine) Traits() driver.Traits {
	return driver.Traits{Engine: e.cfg.Name, Leased: true, Order: driver.OrderAll, Limits: true, MinTTL: minTTL}
}

// Renew extends acquisitions to a full TTL from now; see [driver.Engine]. Names are renewed
// concurrently, each in one or two requests.
func (e *Engine) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	var all sync.WaitGroup
	for i, l := range leases {
		all.Go(func() { errs[i] = e.do(ctx, l.Name, renewal(l)) }) // ends with its answer or ctx
	}
	all.Wait()
	return errs
}

// Release ends an acquisition; see [driver.Engine].
func (e *Engine) Release(ctx context.Context, lease driver.Lease) error {
	e.Detach(lease) // its end is no loss
	return e.do(ctx, lease.Name, leaving(lease))
}

// Detach forgets an acquisition: its end is not reported; see [driver.Adopter].
func (e *Engine) Detach(lease driver.Lease) {
	w := e.worker(lease.Name)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.holds, lease.Owner)
}

// Break ends all acquisitions of name and its minimum hold; see [driver.Breaker].
func (e *Engine) Break(ctx context.Context, name, reason string) (token int64, err error) {
	return e.end(ctx, name, "", reason)
}

// BreakOwner ends one acquisition of name; see [driver.OwnerBreaker].
func (e *Engine) BreakOwner(ctx context.Context, name, owner, reason string) (token int64, err error) {
	if owner == "" {
		return 0, notHeld(name)
	}
	return e.end(ctx, name, owner, reason)
}

func (e *Engine) end(ctx context.Context, name, owner, reason string) (token int64, err error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	var issued int64
	if err := e.do(ctx, name, breaking(owner, cut(reason), &issued)); err != nil {
		return 0, err
	}
	return issued, nil
}

// Resize sets the limit of a shared name; see [driver.Resizer]. The record keeps it for good.
func (e *Engine) Resize(ctx context.Context, name string, limit int) error {
	if err := driver.CheckResize(name, limit); err != nil {
		return err
	}
	return e.do(ctx, name, &job{apply: func(st *state, _ moment) (answer, error) {
		st.Limit = limit
		return stored, nil
	}})
}

// workerLife is how long an idle worker is kept, with what it knows of the record, such as how long
// it has seen the lease of a dead holder. It is kept until a lease that it has seen is over.
const workerLife = time.Minute

// worker returns the worker of a name.
func (e *Engine) worker(name string) *worker {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.swept.Due(workerLife) {
		for name, d := range e.workers {
			d.mu.Lock()
			if !d.running && time.Since(d.idle) > workerLife && time.Since(d.next) > workerLife {
				delete(e.workers, name)
			}
			d.mu.Unlock()
		}
	}
	w := e.workers[name]
	if w == nil {
		w = &worker{engine: e, id: rand.Text(), name: name, key: e.key(name), wake: make(chan struct{}, 1), holds: map[string]*acquiring{}, old: true}
		e.workers[name] = w
	}
	w.mu.Lock()
	w.idle = time.Now() // the caller gives it a job, so it is not swept now
	w.mu.Unlock()
	return w
}
