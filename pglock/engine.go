package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Engine grants locks of one database. All its methods may be called from many
// goroutines at once.
type Engine struct {
	pool     *pgxpool.Pool
	cfg      Config
	own      lazy // for questions and notes
	registry registry
	seats    chan struct{} // counts connections of waiters in use

	mu       sync.Mutex // guards all below
	done     bool       // Close was called
	sessions map[*session]struct{}
	locks    map[time.Duration]*lazy // lock sessions by TTL
	idle     []*session              // of waiters, ready for the next one
	turns    map[int64]*turn
	holds    map[string]*hold // by owner
	bells    map[int64]chan struct{}
}

var _ interface {
	driver.Engine
	driver.Lister
	driver.Breaker
	driver.Resizer
	driver.AllAcquirer
} = (*Engine)(nil)

// minTTL is the shortest lease: a heartbeat at a third of it must get through.
const minTTL = 500 * time.Millisecond

// New returns an engine for the database of pool; cfg may be nil. It does no I/O.
//
// The pool lends the engine its configuration only: locks live on connections of
// the engine's own, so they never take one that the application waits for, and
// the application's statements never run on them.
func New(pool *pgxpool.Pool, cfg *Config) *Engine {
	c := cfg.withDefaults()
	e := &Engine{
		pool: pool, cfg: c,
		seats:    make(chan struct{}, c.MaxWaiters),
		sessions: map[*session]struct{}{},
		locks:    map[time.Duration]*lazy{},
		turns:    map[int64]*turn{},
		holds:    map[string]*hold{},
		bells:    map[int64]chan struct{}{},
	}
	e.registry.engine = e
	return e
}

// Traits says what the engine promises: leases, first come first served between
// processes with one turn each, and shared locks with a limit.
func (e *Engine) Traits() driver.Traits {
	return driver.Traits{Engine: "postgres", Leased: true, Order: driver.OrderProcess, Limits: true,
		MinTTL: minTTL, MaxTTL: e.cfg.MaxTTL}
}

// Close ends every lock and every connection of the engine; holders are told that
// they lost their locks. The pool stays open. Later requests fail.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.done = true
	var all []*session
	for s := range e.sessions {
		all = append(all, s)
	}
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var calls []*call
	for _, s := range all {
		if s.waits() {
			continue // it holds nothing, and could not answer
		}
		calls = append(calls, s.send(stmtForgetAll, s.id), s.send(stmtLeave, s.id))
	}
	for _, c := range calls {
		_, _ = c.wait(ctx) // what is left is ignored once its leases are over
	}
	for _, s := range all {
		s.close(errClosed)
	}
	return nil
}

var (
	errClosed     = errors.New("the engine was closed")
	stmtForgetAll = &statement{"forget_all", `DELETE FROM fencelock.holder WHERE session = $1::integer`}
)

// lazy is a session that is opened when it is needed.
type lazy struct {
	cur  atomic.Pointer[session]
	once sync.Once
	key  chan struct{} // who has it may open a session
}

// get returns the session, opening one with dial if there is none that is usable.
func (l *lazy) get(ctx context.Context, dial func(context.Context) (*session, error)) (*session, error) {
	if s := l.cur.Load(); s != nil && s.usable() {
		return s, nil
	}
	l.once.Do(func() { l.key = make(chan struct{}, 1) })
	select {
	case l.key <- struct{}{}:
		defer func() { <-l.key }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s := l.cur.Load(); s != nil && s.usable() {
		return s, nil
	}
	s, err := dial(ctx)
	if err == nil {
		l.cur.Store(s)
	}
	return s, err
}

// lockSession returns the session that holds the uncontended locks of a TTL, for
// so many more of them.
func (e *Engine) lockSession(ctx context.Context, ttl time.Duration, more int) (*session, error) {
	e.mu.Lock()
	l := e.locks[ttl]
	if l == nil {
		l = &lazy{}
		e.locks[ttl] = l
	}
	held := len(e.holds)
	e.mu.Unlock()
	s, err := l.get(ctx, func(ctx context.Context) (*session, error) {
		s, err := e.dialBoth(ctx, ttl)
		if err == nil {
			go e.registry.sweep() // ends when the server has answered or has not in time
		}
		return s, err
	})
	if err == nil && held+more > s.room {
		return nil, refuse("this process holds %d locks, 60 %% of what the server has room for; raise max_locks_per_transaction", held)
	}
	return s, err
}

// dialBoth opens a lock session and makes sure of the engine's own, so that the
// first holder is written down as soon as others. The own one may be missing for
// a while, but not because something is wrong with the server or the way to it.
func (e *Engine) dialBoth(ctx context.Context, ttl time.Duration) (*session, error) {
	own := make(chan error, 1)
	open := func() { // ends when the engine's own session is open, or cannot be opened
		_, err := e.ownSession(ctx)
		own <- err
	}
	if !e.cfg.AllowPooler {
		go open()
	}
	s, err := e.dial(ctx, ttl)
	if e.cfg.AllowPooler {
		open() // a pooler in transaction mode now lends out the same server process once more, which shows
	}
	wrong := <-own
	if _, ok := errors.AsType[*refusal](wrong); err == nil && ok {
		s.retire(wrong)
		return nil, wrong
	}
	return s, err
}

// ownSession returns the engine's own session, which holds no locks.
func (e *Engine) ownSession(ctx context.Context) (*session, error) {
	return e.own.get(ctx, func(ctx context.Context) (*session, error) { return e.dial(ctx, 0) })
}

// reopen opens the engine's own session for a process that holds locks and has no
// other need of it: it is where a break is heard.
func (e *Engine) reopen() {
	ctx, cancel := context.WithTimeout(context.Background(), dialLimit)
	defer cancel()
	_, _ = e.ownSession(ctx) // the next renewal tries again
}

// ask runs a statement on the engine's own session.
func (e *Engine) ask(ctx context.Context, stmt *statement, args ...any) ([]row, error) {
	s, err := e.ownSession(ctx)
	if err != nil {
		return nil, err
	}
	return s.run(ctx, stmt, args...)
}

// lose ends the locks of a session that has ended.
func (e *Engine) lose(s *session) {
	e.mu.Lock()
	delete(e.sessions, s)
	if l := e.locks[s.ttl]; l != nil && l.cur.Load() == s {
		delete(e.locks, s.ttl)
	}
	var gone []*hold
	for h := range s.holds {
		e.drop(h)
		gone = append(gone, h)
	}
	for _, h := range gone {
		e.turnLocked(h.key, func(t *turn) { t.leave(h.mode) })
	}
	e.mu.Unlock()
	for _, h := range gone {
		e.registry.withdraw(h)
		h.tell(fmt.Errorf("%w: %w", driver.ErrLost, s.over()))
		e.leave(h.session, h)
	}
}

// expire ends the locks of a session that nobody renewed in time.
func (e *Engine) expire(s *session, now time.Time) {
	e.mu.Lock()
	var gone []*hold
	for h := range s.holds {
		if now.After(h.until) {
			e.drop(h)
			gone = append(gone, h)
		}
	}
	e.mu.Unlock()
	for _, h := range gone {
		h.tell(fmt.Errorf("%w: nobody renewed it for %v", driver.ErrLost, h.ttl))
		go func() { _ = e.free(h) }() // ends when the server has answered or the connection has ended
	}
}
