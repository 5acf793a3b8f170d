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

// Engine grants locks of one database. All its methods may be called from many
// goroutines at once.
// Use it through fencelock.New: its own Acquire does not renew.
type Engine struct {
	dialer   *dialer     // connections, and which of them live
	own      *ownSession // for questions, and where a break is heard
	holds    *holdings   // what this process has, and how it is renewed and released
	acquirer *acquirer   // how it is got
	breaker  *breaker    // how that of others is ended
	records  *records
	rates    *rates
}

// New returns an engine for the database of pool; cfg may be nil. It does no I/O.
//
// The pool lends the engine its configuration only: locks live on connections of
// the engine's own, so they never take one that the application waits for, and
// the application's statements never run on them.
func New(pool *pgxpool.Pool, cfg *Config) *Engine {
	d := &dialer{pool: pool, cfg: cfg.withDefaults(), sessions: map[*session]struct{}{}}
	own := &ownSession{}
	own.dial = func(ctx context.Context) (*session, error) { return d.dial(ctx, 0, false) }
	a := &acquirer{
		own:     own,
		locks:   &lockSessions{dialer: d, own: own, byTTL: map[time.Duration]*lazySession{}},
		waiters: &waiterPool{dialer: d, slots: make(chan struct{}, d.cfg.MaxWaiters)},
		turns:   &turns{byKey: map[int64]*turn{}},
		room:    &room{own: own},
		maxTTL:  d.cfg.MaxTTL,
	}
	a.holds = &holdings{own: own, waiters: a.waiters, turns: a.turns, room: a.room, byOwner: map[string]*hold{}}
	b := &breaker{own: own, holds: a.holds, wait: d.cfg.BreakWait, force: d.cfg.ForceBreak}
	d.onNotice, d.onTick = b.hear, a.holds.expire
	d.isFree = func(s *session) bool { return len(a.holds.of(s)) == 0 }
	d.onEnd = func(s *session) {
		a.locks.forget(s)
		a.holds.lose(s)
	}
	tables := newLanes(own.dial)
	return &Engine{
		dialer: d, own: own, holds: a.holds, acquirer: a, breaker: b,
		records: &records{lanes: tables}, rates: &rates{lanes: tables},
	}
}

// Traits says what the engine promises: leases, first come first served between
// processes with one turn each, and shared locks with a limit.
func (e *Engine) Traits() driver.Traits { return e.acquirer.traits() }

// Part names the connection that a lease lives on; see [driver.Parter].
func (e *Engine) Part(lease driver.Lease) string {
	if h := e.holds.find(lease); h != nil {
		return fmt.Sprint(h.session.id)
	}
	return ""
}

// Acquire makes one acquisition; see [driver.Engine]. A wait ends early with
// driver.ErrUnavailable if the server found a deadlock ([ErrDeadlock]).
func (e *Engine) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return e.acquirer.Acquire(ctx, req)
}

// Renew extends acquisitions to a full TTL from now, with one statement for each
// connection they live on. One whose connection has ended, that was broken or
// that nobody renewed in time is driver.ErrNotHeld.
func (e *Engine) Renew(ctx context.Context, leases []driver.Lease) []error {
	return e.holds.Renew(ctx, leases)
}

// Release ends an acquisition, and lets the next one in. When it returns nil the
// server has let go.
func (e *Engine) Release(ctx context.Context, lease driver.Lease) error {
	return e.holds.Release(ctx, lease)
}

// Break ends every acquisition of name and its minimum hold, and returns a token that shuts the holders
// out of guarded resources. Engines hear of it at once and let go. Holders that
// have not let go after Config.BreakWait, frozen ones and sessions that are no
// engine's, keep the lock, and Break returns the token together with a
// driver.ErrUnavailable that says who they are; with Config.ForceBreak it ends
// their connections. A holder that vanished, and keeps the name closed until its
// lease is over, is forgotten.
func (e *Engine) Break(ctx context.Context, name, reason string) (int64, error) {
	return e.breaker.Break(ctx, name, reason)
}

// BreakOwner is Break for one acquisition: that of owner, and of nobody else. The holder
// lets go by itself. With Config.ForceBreak the connection of one
// that has not let go is ended, and its other locks with it.
func (e *Engine) BreakOwner(ctx context.Context, name, owner, reason string) (int64, error) {
	return e.breaker.BreakOwner(ctx, name, owner, reason)
}

const besideSQL = `WITH h AS (
	SELECT session, key, name FROM fencelock.held WHERE owner IS NOT NULL UNION ALL SELECT session, key, name FROM fencelock.sharer)
SELECT DISTINCT o.name FROM h JOIN h o ON o.session = h.session WHERE h.key = $1::bigint AND o.key <> h.key ORDER BY 1`

// NamesOnSameSession returns the other names, in order, that are held on the connections of
// name's holders: those that a Break by force would take away as well.
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

// Resize sets the limit of a shared name for everybody; see [driver.Resizer]. It
// is on disk when Resize returns, and lasts as long as the schema.
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

// Records returns the records of the database: the rows of fencelock.record, which
// belong to the role that made the schema, and to those to which it grants them. They are
// on disk, and where a standby must have commits on the standby, when Swap returns.
func (e *Engine) Records() driver.Records { return e.records }

// TakeRate grants events of a key or refuses them, in one transaction and by the server's
// clock; see [driver.RateLimiter]. A crash of the server, and a failover, forget what was
// granted: each key gets a burst anew.
func (e *Engine) TakeRate(ctx context.Context, take driver.RateTake) (driver.RateTaken, error) {
	return e.rates.TakeRate(ctx, take)
}

// ReturnRate undoes a take; see [driver.RateLimiter].
func (e *Engine) ReturnRate(ctx context.Context, take driver.RateTake, taken driver.RateTaken) error {
	return e.rates.ReturnRate(ctx, take, taken)
}

// ResetRate forgets what was granted of a key; see [driver.RateLimiter].
func (e *Engine) ResetRate(ctx context.Context, key string) error {
	return e.rates.ResetRate(ctx, key)
}

// Init creates the schema with the rights of the pool's role. Where it is there already, in this
// version, its functions are made anew; another version is driver.ErrConfig.
func (e *Engine) Init(ctx context.Context) error {
	return failure(e.dialer.eachHost(ctx, func(ctx context.Context, c *pgconn.PgConn, _ string) error {
		defer c.Close(ctx)
		return create(ctx, c)
	}))
}

// Ping connects to a host of the pool's DSN and hangs up, to learn whether it lets the role in.
// The error is driver.ErrUnavailable if a host does not answer, and driver.ErrConfig if every
// one refuses us.
func (e *Engine) Ping(ctx context.Context) error {
	return failure(e.dialer.eachHost(ctx, func(ctx context.Context, c *pgconn.PgConn, _ string) error { return c.Close(ctx) }))
}

// closeLimit bounds what Close waits for the server.
const closeLimit = time.Second

var errClosed = errors.New("the engine was closed")

// Close ends every lock and every connection of the engine; holders are told that
// they lost their locks. The pool stays open. Later requests fail.
func (e *Engine) Close() error {
	all := e.dialer.shut()
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var held []*hold
	for _, s := range all {
		for _, h := range e.holds.of(s) {
			if e.holds.drop(h) {
				held = append(held, h)
				h.tell(fmt.Errorf("%w: %w", driver.ErrLost, errClosed)) // before anybody else can get in
			}
		}
	}
	var calls []*pipe.Call
	for _, h := range held {
		calls = append(calls, h.free())
	}
	for _, c := range calls {
		_, _ = c.Wait(ctx) // what is left closes its name until its lease would have ended
	}
	for _, s := range all {
		s.Close(errClosed)
	}
	for _, h := range held {
		e.holds.ended(h)
	}
	return nil
}
