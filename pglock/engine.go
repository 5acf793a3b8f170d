package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var _ interface {
	driver.Engine
	driver.Lister
	driver.Breaker
	driver.OwnerBreaker
	driver.Resizer
	driver.Inspector
	driver.Parter
	driver.RateLimiter
	driver.RecordKeeper
} = (*Engine)(nil)

// Engine implements driver.Engine on one PostgreSQL database. It is safe for concurrent use. Pass
// it to fencelock.New, which renews leases; Engine.Acquire alone does not.
type Engine struct {
	dialer   *dialer     // opens connections and lists the open ones
	own      *ownSession // for queries and break notifications
	holds    *holdings   // the locks of this process; renews and releases them
	acquirer *acquirer   // acquires locks
	breaker  *breaker    // ends the locks of others
	records  *records
	rates    *rates
}

// New returns an engine for the database of pool; cfg may be nil. It does no I/O.
//
// The engine copies the pool's configuration and opens its own connections. Locks never use a
// connection that the application waits for, and the application's statements never run on a
// connection with locks.
func New(pool *pgxpool.Pool, cfg *Config) *Engine {
	d := &dialer{pool: pool, cfg: cfg.withDefaults(), sessions: map[*session]struct{}{}, patience: patience{start: time.Now()}}
	d.closed, d.close = context.WithCancel(context.Background())
	own := &ownSession{dialer: d, sweeper: sweeper{every: sweepTime}}
	own.dial = func(ctx context.Context) (*session, error) { return d.dial(ctx, 0, false) }
	a := &acquirer{
		own:      own,
		locks:    &lockSessions{dialer: d, byTTL: map[time.Duration]*lazySession{}},
		waiters:  &waiterPool{dialer: d, slots: make(chan struct{}, d.cfg.MaxWaiters)},
		queues:   &localQueues{byKey: map[int64]*localQueue{}},
		quota:    &lockQuota{own: own},
		sleepers: &sleepers{byKey: map[int64]chan struct{}{}},
		maxTTL:   d.cfg.MaxTTL,
		closed:   d.closed,
		rowLook:  rowLook,
	}
	a.holds = &holdings{own: own, waiters: a.waiters, queues: a.queues, quota: a.quota, byOwner: map[string]*hold{}}
	b := &breaker{own: own, holds: a.holds, sleepers: a.sleepers, wait: d.cfg.BreakWait, force: d.cfg.ForceBreak}
	d.onNotice = b.onNotification
	d.onTick = func(s *session, now time.Time) {
		a.holds.expire(s, now)
		own.tick(s, now)
		s.endQuarantine(now)
	}
	d.isFree = func(s *session) bool { return len(a.holds.of(s)) == 0 }
	d.onEnd = func(s *session) {
		a.locks.forget(s)
		a.holds.lose(s)
	}
	tables := newPipelines(d, own.dial)
	return &Engine{
		dialer: d, own: own, holds: a.holds, acquirer: a, breaker: b,
		records: &records{pipelines: tables}, rates: &rates{pipelines: tables},
	}
}

// Traits returns the engine's capabilities.
func (e *Engine) Traits() driver.Traits { return e.acquirer.traits() }

// minTTL is the shortest lease: a heartbeat after a third of it must reach the server in time.
const minTTL = 500 * time.Millisecond

// traits returns the engine's capabilities.
func (acq *acquirer) traits() driver.Traits {
	return driver.Traits{Engine: "postgres", Leased: true, Order: driver.OrderProcess, Limits: true, Rates: true,
		MinTTL: minTTL, MaxTTL: acq.maxTTL}
}

// Part returns an id of the connection on which a lease is held; see [driver.Parter].
func (e *Engine) Part(lease driver.Lease) string {
	if h := e.holds.find(lease); h != nil {
		return fmt.Sprint(h.session.id)
	}
	return ""
}

// Acquire makes one acquisition; see [driver.Engine]. If the server detects a deadlock, the wait
// ends with driver.ErrUnavailable and [ErrDeadlock].
func (e *Engine) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return e.acquirer.Acquire(ctx, req)
}

// Renew extends acquisitions to a full TTL from now, with one statement per connection. It returns
// driver.ErrNotHeld for those whose connection has ended, that were broken, or that had expired.
func (e *Engine) Renew(ctx context.Context, leases []driver.Lease) []error {
	return e.holds.Renew(ctx, leases)
}

// Release ends an acquisition and lets the next request in. When it returns nil, the server has
// released the lock.
func (e *Engine) Release(ctx context.Context, lease driver.Lease) error {
	return e.holds.Release(ctx, lease)
}

// Break ends every acquisition of name and its minimum hold. It returns a fencing token that is
// greater than theirs, so that guarded resources reject the old holders. Engines that hold the lock
// are notified and release it. The stored lease of a holder that vanished is deleted.
//
// If a holder has not released the lock after Config.BreakWait, because it is frozen or is not an
// engine of this library, it keeps the lock. Break then returns the token together with a
// driver.ErrUnavailable that names the server processes. With Config.ForceBreak it terminates their
// connections instead.
func (e *Engine) Break(ctx context.Context, name, reason string) (int64, error) {
	return e.breaker.Break(ctx, name, reason)
}

// BreakOwner is like Break, but ends only the acquisition of owner. With Config.ForceBreak, the
// connection of a holder that has not released the lock is terminated, together with its other
// locks.
func (e *Engine) BreakOwner(ctx context.Context, name, owner, reason string) (int64, error) {
	return e.breaker.BreakOwner(ctx, name, owner, reason)
}

const besideSQL = `WITH h AS (
	SELECT session, key, name FROM fencelock.held WHERE owner IS NOT NULL UNION ALL SELECT session, key, name FROM fencelock.sharer)
SELECT DISTINCT o.name FROM h JOIN h o ON o.session = h.session WHERE h.key = $1::bigint AND o.key <> h.key ORDER BY 1`

// NamesOnSameSession returns the other names, in order, that are held on the connections of name's
// holders. A Break with Config.ForceBreak may end these too.
func (e *Engine) NamesOnSameSession(ctx context.Context, name string) ([]string, error) {
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	rows, err := e.own.ask(ctx, besideSQL, keyOf(name))
	if err != nil {
		return nil, failure(err)
	}
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.Text(0)
	}
	return names, nil
}

// Resize sets the limit of a shared name for all clients; see [driver.Resizer]. The limit is on
// disk when Resize returns, and stays until the next Resize.
func (e *Engine) Resize(ctx context.Context, name string, limit int) error {
	if err := driver.CheckResize(name, limit); err != nil {
		return err
	}
	if err := checkLimit(limit); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := e.own.ask(ctx, `SELECT fencelock.resize($1::bigint, $2::text, $3::integer)`, keyOf(name), name, limit)
	return failure(err)
}

// Records returns the records of the database, which are the rows of fencelock.record. Only the
// role that created the schema may use them, and those to which it grants access. When Swap
// returns, the change is on disk, and also on the standbys that commits wait for
// (synchronous_standby_names). A call is repeated for 30 seconds, for example while the server
// starts, and only for Config.Timeout if the server sends nothing.
func (e *Engine) Records() driver.Records { return e.records }

// TakeRate grants or refuses events of a key, in one transaction and by the server's clock; see
// [driver.RateLimiter]. A crash or a failover of the server loses what was granted, so each key
// gets a full burst again. The call is repeated like those of Records.
func (e *Engine) TakeRate(ctx context.Context, take driver.RateTake) (driver.RateTaken, error) {
	return e.rates.TakeRate(ctx, take)
}

// ReturnRate undoes a take; see [driver.RateLimiter].
func (e *Engine) ReturnRate(ctx context.Context, take driver.RateTake, taken driver.RateTaken) error {
	return e.rates.ReturnRate(ctx, take, taken)
}

// ResetRate deletes the state of a key; see [driver.RateLimiter].
func (e *Engine) ResetRate(ctx context.Context, key string) error {
	return e.rates.ResetRate(ctx, key)
}

// Init creates the schema with the permissions of the pool's role. If the schema exists in this
// version, Init replaces its functions, unless they are those of a later program. If it exists in
// another version, Init returns driver.ErrConfig.
func (e *Engine) Init(ctx context.Context) error {
	return failure(e.dialer.eachHost(ctx, func(ctx context.Context, c *pgconn.PgConn, _ string) error {
		defer c.Close(ctx)
		if later(ctx, c) {
			return nil
		}
		return create(ctx, c)
	}))
}

// Ping connects to the hosts of the pool's DSN and disconnects, to check that one accepts the role.
// It returns driver.ErrUnavailable if a host does not answer, and driver.ErrConfig if all hosts
// refuse the connection.
func (e *Engine) Ping(ctx context.Context) error {
	return failure(e.dialer.within(ctx, func(ctx context.Context) error {
		return e.dialer.eachHost(ctx, func(ctx context.Context, c *pgconn.PgConn, _ string) error { return c.Close(ctx) })
	}))
}

// closeLimit is how long Close waits for the server.
const closeLimit = time.Second

var errClosed = errors.New("the engine is closed")

// Close ends every lock and every connection of the engine. Holders are notified that their locks
// are lost. It does not close the pool. Later requests fail.
func (e *Engine) Close() error {
	all := e.dialer.shut()
	e.holds.close()
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var held []*hold
	for _, s := range all {
		for _, h := range e.holds.of(s) {
			if e.holds.drop(h) {
				held = append(held, h)
				h.tell(fmt.Errorf("%w: %w", driver.ErrLost, errClosed)) // before anybody else can get in
			} // before another client can acquire it
		}
	}
	frees := make([]*pipe.Call, len(held))
	for i, h := range held {
		frees[i] = h.free()
	}
	e.acquirer.attempts.close(ctx)
	failed := map[*session]bool{}
	for i, c := range frees {
		if _, err := c.Wait(ctx); err != nil { // the name stays closed until the lease would have expired
			failed[held[i].session] = true
		}
	}
	var retired []*pipe.Call
	for _, s := range all {
		if oldest, _ := s.Oldest(); oldest == nil && !failed[s] { // else it may be granted a lock, whose lease counts from the row
			retired = append(retired, s.retire())
		}
	}
	for _, c := range retired {
		_, _ = c.Wait(ctx) // if it failed, a sweep deletes the row
	}
	for _, s := range all {
		s.Close(errClosed)
	}
	for _, h := range held {
		e.holds.ended(h)
	}
	return nil
}
