package pglock

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
)

// lazySession is a session that is opened on first use and shared by all callers.
type lazySession struct {
	dial func(context.Context) (*session, error)

	mu   sync.Mutex // guards last
	last *opening   // nil before the first use
}

// start opens the session unless it is usable.
func (l *lazySession) start() *opening {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.last.usable() {
		l.last = open(l.dial)
	}
	return l.last
}

// get returns the session, and opens it if necessary.
func (l *lazySession) get(ctx context.Context) (*session, error) { return l.start().session(ctx) }

// ownSession is the engine's own session, which holds no locks. It runs queries, slow statements
// and statements that wait for the disk, and receives notifications of breaks.
type ownSession struct {
	lazySession
	dialer  *dialer
	sweeper sweeper
}

// ask runs a query. It ends when the server has said nothing for Config.Timeout.
func (o *ownSession) ask(ctx context.Context, sql string, args ...any) (rows []pipe.Row, err error) {
	err = o.dialer.within(ctx, func(ctx context.Context) error {
		s, err := o.get(ctx)
		if err == nil {
			rows, err = s.Query(sql, args...).Wait(ctx)
		}
		return err
	})
	return rows, err
}

// tick is called regularly for each open session.
func (o *ownSession) tick(s *session, now time.Time) {
	o.mu.Lock()
	own := o.last != nil && o.last.over() && o.last.s == s
	o.mu.Unlock()
	if own {
		o.sweeper.sweepIfDue(s, now)
	}
}

// askLimit bounds background queries.
const askLimit = 5 * time.Second

// listen opens the session in a process that holds locks, so that it receives notifications of
// breaks.
func (o *ownSession) listen() { o.start() } // if that fails, the next renewal tries again

// forgetSQL clears the rows of an owner for a key, and notifies those that wait for the row to go.
const forgetSQL = `WITH s AS (DELETE FROM fencelock.sharer WHERE key = $1::bigint AND owner = $2::text),
	h AS (UPDATE fencelock.held SET owner = NULL WHERE key = $1::bigint AND owner = $2::text)
SELECT pg_notify('fencelock', 'free ' || $1::bigint)`

// lastForget is the longest pause between two attempts to clear a row, which closes its name.
const lastForget = time.Second

// forget clears the row of an owner whose lock was released on the session without it. The row
// would otherwise close the name for a TTL, or count for a limit as long as the session lives.
// forget retries that long.
func (o *ownSession) forget(s *session, key int64, owner string) {
	for pause := retry.NewBackoff(firstRepair, lastForget); ; {
		ctx, cancel := context.WithTimeout(context.Background(), askLimit)
		_, err := o.ask(ctx, forgetSQL, key, owner)
		cancel()
		if err == nil || s.Err() != nil || missing(err) {
			return // a row that remains expires after the TTL
		}
		_ = pause.Wait(context.Background())
	}
}

// lockSessions are the sessions for uncontended locks.
type lockSessions struct {
	dialer *dialer

	mu    sync.Mutex // guards byTTL
	byTTL map[time.Duration]*lazySession
}

// maxTTLs is the largest number of lock sessions. The last one has the TTL MaxTTL and serves all
// further TTLs.
const maxTTLs = 4

// pick returns the lock session for a TTL, and the TTL of that session.
func (l *lockSessions) pick(ttl time.Duration) (time.Duration, *lazySession) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for have := range l.byTTL {
		if ttl <= have && have <= ttl+ttl/4 {
			ttl = have
		}
	}
	if l.byTTL[ttl] == nil && len(l.byTTL) >= maxTTLs-1 {
		ttl = l.dialer.cfg.MaxTTL
	}
	if l.byTTL[ttl] == nil {
		l.byTTL[ttl] = &lazySession{dial: func(ctx context.Context) (*session, error) { return l.dialer.dial(ctx, ttl, false) }}
	}
	return ttl, l.byTTL[ttl]
}

// forget drops a session that has ended.
func (l *lockSessions) forget(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if z := l.byTTL[s.ttl]; z != nil && !s.waiter && !z.busy(s) {
		delete(l.byTTL, s.ttl)
	}
}

// busy reports whether a session other than s is open, or being opened, in its place.
func (l *lazySession) busy(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.last.over() || l.last.s != nil && l.last.s != s
}
