package redislock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/redis/rueidis"
)

var (
	_ driver.Engine      = (*Engine)(nil)
	_ driver.Lister      = (*Engine)(nil)
	_ driver.Breaker     = (*Engine)(nil)
	_ driver.Inspector   = (*Engine)(nil)
	_ driver.AllAcquirer = (*Engine)(nil)
)

// Config tunes an engine. The zero value is useful.
type Config struct {
	// Prefix begins every key, so that several deployments can share a server.
	// Clients with different prefixes do not see each other. Empty, which is the
	// default, makes lock:<name> the key of a name.
	Prefix string

	// MinReplicas is how many replicas must have acknowledged an acquisition
	// before it is granted (WAIT). It narrows the hole that a failover leaves,
	// and never closes it. 0, the default, waits for none.
	MinReplicas int

	// Quarantine makes a server that may have forgotten who holds what (after a
	// restart, a failover or a FLUSHALL) grant nothing until MaxTTL has passed.
	// Every client of a deployment must agree. It costs an INFO in each acquire,
	// and the first use of a new server waits too, unless Init was called. It is
	// not available on a Cluster. The default is false.
	Quarantine bool

	// MaxTTL is the longest TTL that a request may ask for with Quarantine,
	// where every client must agree on it; 0 means 30 s. It is ignored without.
	MaxTTL time.Duration

	// ReplicaLag is the most that min-replicas-max-lag says on any of the masters,
	// with Quarantine and replicas: a master that was cut off takes renewals for so
	// long, so the quarantine lasts MaxTTL and ReplicaLag and 2 s more. Every client
	// must agree on it. 0, the default, is for a server without replicas; with
	// Quarantine one that has some is refused then (driver.ErrConfig), as is one
	// whose min-replicas-to-write is 0. It is ignored without Quarantine.
	ReplicaLag time.Duration

	// MarkerLife is for how long a server without locks is remembered, with
	// Quarantine: a grant or a listing after a longer pause finds what looks like a
	// new server. 0 means 90 days. It is ignored without Quarantine.
	MarkerLife time.Duration

	// AllowEviction accepts a server that evicts keys when its memory is full,
	// and locks with them. The default refuses it.
	AllowEviction bool

	// RetryTimeout is how long an acquire that has not reached the server yet keeps
	// trying before it returns driver.ErrUnavailable; 0 means 4 s. A request
	// that waits in the queue rides out any failure until its context ends,
	// unless the server refuses its questions (it lost a right, say) for so long.
	RetryTimeout time.Duration

	// Retention is for how long after its last use the last fencing token of a
	// name is kept; 0 means 7 days. Later the server's clock alone makes tokens
	// grow.
	Retention time.Duration
}

func (cfg *Config) withDefaults() Config {
	var full Config
	if cfg != nil {
		full = *cfg
	}
	or := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	or(&full.MaxTTL, 30*time.Second)
	or(&full.RetryTimeout, 4*time.Second)
	or(&full.Retention, 7*24*time.Hour)
	or(&full.MarkerLife, 90*24*time.Hour)
	return full
}

// Engine is a client of one Redis: a server, a master and its replicas, or a
// Cluster. All methods may be called from many goroutines at once.
type Engine struct {
	conn Conn
	cfg  Config
	id   string // of this client; its channel is named after it

	retention string    // of a fence, as an argument
	common    [8]string // the first argument of most scripts, by what is asked for

	closed context.Context // ends with Close
	close  context.CancelFunc
	tasks  sync.WaitGroup // goroutines that end after Close; Add under mu

	batcher batcher
	clock   clock
	parts   parts
	fitness fitness
	marked  marked
	index   nameindex.Notes // for List to look at

	mu       sync.Mutex         // guards all below
	done     bool               // no more tasks
	waiters  map[string]*waiter // by owner
	groups   map[string]*group  // waiters by name
	holds    map[string]hold    // by owner
	hot      map[string]bool    // names that were waited for when we got them last
	listener *listener
}

// New returns an engine on a rueidis client, which stays the caller's to close.
// It does no I/O; cfg may be nil.
func New(client rueidis.Client, cfg *Config) *Engine { return NewConn(newRueidis(client), cfg) }

// NewConn returns an engine on a connection of another kind.
func NewConn(conn Conn, cfg *Config) *Engine {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	e := &Engine{
		conn:    conn,
		cfg:     cfg.withDefaults(),
		id:      hex.EncodeToString(id[:]),
		waiters: map[string]*waiter{},
		groups:  map[string]*group{},
		holds:   map[string]hold{},
		hot:     map[string]bool{},
		batcher: batcher{delay: batchDelay},
		fitness: fitness{looking: make(chan struct{}, 1)},
	}
	e.closed, e.close = context.WithCancel(context.Background())
	e.retention = millis(e.cfg.Retention)
	for i := range e.common {
		e.common[i] = e.commonArg(asks(i))
	}
	return e
}

// Close ends the engine's subscription and its waits, which return
// driver.ErrUnavailable. Locks it holds stay until they expire; release them
// first. It waits for the engine's goroutines and does not close the client.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.done = true
	e.mu.Unlock()
	e.close()
	e.tasks.Wait()
	return nil
}

// spawn runs a task that Close waits for, unless Close was called. The caller
// holds mu.
func (e *Engine) spawn(task func()) bool {
	if e.done {
		return false
	}
	e.tasks.Go(task)
	return true
}

// errClosed is what calls on a closed engine wrap.
var errClosed = errors.New("the engine was closed")

// Traits returns what one Redis promises.
func (e *Engine) Traits() driver.Traits {
	t := driver.Traits{Engine: "redis", Leased: true, Order: driver.OrderAll, Limits: true}
	if e.cfg.Quarantine {
		t.MaxTTL = e.cfg.MaxTTL
	}
	return t
}

// asks is what an acquire script is asked for beside the lock.
type asks int

const (
	toWait    asks = 1 << iota // a place in the queue
	askedOnce                  // an earlier try may have worked
	toFollow                   // which place it is
)

func (a asks) String() string { return [...]string{"-", "w", "a", "wa", "p", "wp", "ap", "wap"}[a] }

// commonArg is the first argument of every script that may grant.
func (e *Engine) commonArg(a asks) string {
	counts, quarantine := 1, int64(0)
	if e.conn.Cluster() {
		counts = 0 // subscribers on other nodes are not counted
	}
	if e.cfg.Quarantine {
		quarantine = ceilMillis(e.cfg.quarantine())
	}
	return fmt.Sprintf("%v %s %d %d %s", a, e.retention, counts, quarantine, e.channel())
}

// call makes a call of a script that begins with the common argument, and finds
// most keys itself.
func (e *Engine) call(s *Script, ks keys, args ...string) Call { return e.asking(0, s, ks, args...) }

// asking is call with something asked for.
func (e *Engine) asking(a asks, s *Script, ks keys, args ...string) Call {
	passed := []string{ks.lock, ks.fence}
	if e.cfg.Quarantine {
		passed = append(passed, e.marker())
	}
	return Call{Script: s, Keys: passed, Args: append(append(make([]string, 0, 1+len(args)), e.common[a]), args...)}
}

// eval runs one script.
func (e *Engine) eval(ctx context.Context, c Call) (string, error) {
	r := e.conn.Eval(ctx, []Call{c})[0]
	return r.Text, r.Err
}

// Init declares a server new, so that an engine with Quarantine grants on it at
// once. Call it when nobody can hold a lock on it.
func (e *Engine) Init(ctx context.Context) error {
	lasts := ceilMillis(e.cfg.quarantine())
	life := max(ceilMillis(e.cfg.MarkerLife), ceilMillis(e.cfg.Retention), 2*lasts)
	_, err := e.eval(ctx, Call{
		Script: initScript,
		Keys:   []string{e.marker()},
		Args:   []string{strconv.FormatInt(lasts, 10), strconv.FormatInt(life, 10)},
	})
	return unavailable(err)
}
