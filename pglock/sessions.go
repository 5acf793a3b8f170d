package pglock

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
)

// lazySession is a session that is opened when it is needed, for whoever asks meanwhile.
type lazySession struct {
	dial func(context.Context) (*session, error)

	mu   sync.Mutex // guards last
	last *opening   // nil before the first
}

// start opens the session if there is none that lives.
func (l *lazySession) start() *opening {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.last.usable() {
		l.last = open(l.dial)
	}
	return l.last
}

// get returns the session, opening one if there is none that lives.
func (l *lazySession) get(ctx context.Context) (*session, error) { return l.start().session(ctx) }

// ownSession is the engine's own session, which holds no locks. It is for questions, for what may
// take long or waits for the disk, and it is where a break is heard.
type ownSession struct {
	lazySession
	swept retry.Period // of the rows of the dead
}

// ask runs a query.
func (o *ownSession) ask(ctx context.Context, sql string, args ...any) ([]pipe.Row, error) {
	s, err := o.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.Query(sql, args...).Wait(ctx)
}

// askLimit bounds questions that nobody waits for.
const askLimit = 5 * time.Second

// listen opens the session for a process that holds locks and has no other need of it: it is
// where a break is heard.
func (o *ownSession) listen() { o.start() } // if it cannot be opened the next renewal tries again

// forgetSQL frees what an owner has written down about a key.
const forgetSQL = `WITH s AS (DELETE FROM fencelock.sharer WHERE key = $1::bigint AND owner = $2::text)
UPDATE fencelock.held SET owner = NULL WHERE key = $1::bigint AND owner = $2::text`

// forget frees the row of an owner whose lock on a session was given back without it, or the
// row would close the name for a TTL, or take a seat for as long as the session lives. So it is
// tried for that long.
func (o *ownSession) forget(s *session, key int64, owner string) {
	for pause := retry.NewBackoff(firstRepair, lastRepair); ; {
		ctx, cancel := context.WithTimeout(context.Background(), askLimit)
		_, err := o.ask(ctx, forgetSQL, key, owner)
		cancel()
		if err == nil || s.Err() != nil || missing(err) {
			return // what is left costs others the TTL
		}
		_ = pause.Wait(context.Background())
	}
}

// sweepTime is how often an engine removes what the dead left behind, and a little more.
const sweepTime = time.Minute

// sweepSoon removes what the dead left behind, now and then.
func (o *ownSession) sweepSoon() {
	if o.swept.Due(sweepTime + retry.Jitter(sweepTime/4)) {
		go o.sweep() // ends within askLimit
	}
}

// sweep removes what the dead left behind.
func (o *ownSession) sweep() {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	if s, err := o.get(ctx); err == nil {
		_, _ = s.Query("SELECT fencelock.sweep($1::integer, $2::bigint)", s.id, time.Now().UnixMicro()).Wait(ctx) // the next one will
	}
}

// lockSessions are the sessions of uncontended locks.
type lockSessions struct {
	dialer *dialer
	own    *ownSession

	mu    sync.Mutex // guards byTTL
	byTTL map[time.Duration]*lazySession
}

// maxTTLs is how many lock sessions there are at most: TTLs beyond the first few share the
// one of the longest TTL.
const maxTTLs = 4

// pick returns the server's TTL for one that was asked for, and the session of it.
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
		l.byTTL[ttl] = &lazySession{dial: func(ctx context.Context) (*session, error) { return l.open(ctx, ttl) }}
	}
	return ttl, l.byTTL[ttl]
}

// open opens a lock session. Behind a pooler that was allowed, one that does not keep
// connections apart shows when there are two, so the engine's own comes first.
func (l *lockSessions) open(ctx context.Context, ttl time.Duration) (*session, error) {
	if l.dialer.cfg.AllowPooler {
		if _, err := l.own.get(ctx); err != nil {
			return nil, err
		}
	}
	s, err := l.dialer.dial(ctx, ttl, false)
	if err == nil {
		l.own.sweepSoon()
	}
	return s, err
}

// forget drops a session that has ended.
func (l *lockSessions) forget(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if z := l.byTTL[s.ttl]; z != nil && !s.waiter && !z.busy(s) {
		delete(l.byTTL, s.ttl)
	}
}

// busy reports whether another session than s is, or is being opened, in its place.
func (l *lazySession) busy(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.last.over() || l.last.s != nil && l.last.s != s
}
