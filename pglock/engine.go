package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Engine grants locks of one database. All its methods may be called from many
// goroutines at once.
// Use it through fencelock.New: its own Acquire does not renew.
type Engine struct {
	pool    *pgxpool.Pool
	cfg     Config
	own     lazySession // for questions, breaks, and what waits for the disk
	locks   lockSessions
	waiters waiterPool
	turns   turns
	holds   holdings
	seen    sightings
	room    room
	records *register
	rates   *rates

	mu       sync.Mutex // guards all below
	done     bool       // Close was called
	sessions map[*session]struct{}
}

var _ interface {
	driver.Engine
	driver.Lister
	driver.Breaker
	driver.OwnerBreaker
	driver.Resizer
	driver.AllAcquirer
	driver.Parter
	driver.RateLimiter
	driver.Registrar
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
	e := &Engine{pool: pool, cfg: c, sessions: map[*session]struct{}{}}
	e.own.dial = func(ctx context.Context) (*session, error) { return e.dial(ctx, 0, false) }
	e.records = newRegister(e)
	e.rates = newRates(e)
	e.locks = lockSessions{engine: e, byTTL: map[time.Duration]*lazySession{}}
	e.waiters = waiterPool{engine: e, slots: make(chan struct{}, c.MaxWaiters)}
	e.turns.byKey = map[int64]*turn{}
	e.holds.byOwner = map[string]*hold{}
	e.seen.byKey = map[int64]map[string]sighting{}
	return e
}

// Traits says what the engine promises: leases, first come first served between
// processes with one turn each, and shared locks with a limit.
func (e *Engine) Traits() driver.Traits {
	return driver.Traits{Engine: "postgres", Leased: true, Order: driver.OrderProcess, Limits: true, Rates: true,
		MinTTL: minTTL, MaxTTL: e.cfg.MaxTTL}
}

// Part names the connection that a lease lives on; see [driver.Parter].
func (e *Engine) Part(lease driver.Lease) string {
	if h := e.holds.find(lease); h != nil {
		return fmt.Sprint(h.session.id)
	}
	return ""
}

// closeLimit bounds what Close waits for the server.
const closeLimit = time.Second

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
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var calls []*pipe.Call
	for _, s := range all {
		for _, h := range e.holds.of(s) {
			calls = append(calls, h.free())
		}
	}
	for _, c := range calls {
		_, _ = c.Wait(ctx) // what is left closes its name until its lease would have ended
	}
	for _, s := range all {
		s.Close(errClosed)
	}
	return nil
}

var errClosed = errors.New("the engine was closed")

// ask runs a query on the engine's own session, which holds no locks.
func (e *Engine) ask(ctx context.Context, sql string, args ...any) ([]pipe.Row, error) {
	s, err := e.own.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.Query(sql, args...).Wait(ctx)
}

// listen opens the engine's own session for a process that holds locks and has no
// other need of it: it is where a break is heard.
func (e *Engine) listen() {
	if !e.own.ready() {
		go func() { // ends when the session is open or cannot be opened
			ctx, cancel := context.WithTimeout(context.Background(), dialLimit)
			defer cancel()
			_, _ = e.own.get(ctx) // the next renewal tries again
		}()
	}
}

// lose ends the locks of a session that has ended.
func (e *Engine) lose(s *session) {
	e.mu.Lock()
	delete(e.sessions, s)
	e.mu.Unlock()
	e.locks.forget(s)
	for _, h := range e.holds.of(s) {
		if e.holds.drop(h) {
			h.tell(fmt.Errorf("%w: %w", driver.ErrLost, s.Err()))
			e.ended(h)
		}
	}
}

// expire ends the locks of a session that nobody renewed in time.
func (e *Engine) expire(s *session, now time.Time) {
	for _, h := range e.holds.overdue(s, now) {
		h.tell(fmt.Errorf("%w: nobody renewed it for %v", driver.ErrLost, h.ttl))
		go func() { _ = e.release(context.Background(), h) }() // ends when the server has answered or the connection has ended
	}
}
