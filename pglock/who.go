package pglock

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// listDelay is after which time a request that waits in this process is written down for
// others to see.
const listDelay = 20 * time.Millisecond

// listDelay is at once if somebody wants to know when that has happened.
func (a *attempt) listDelay() time.Duration {
	if a.req.OnWait != nil || !a.req.Wait {
		return 0
	}
	return listDelay
}

const listSQL = `INSERT INTO fencelock.queued
SELECT x->>'owner', $1::bigint, x->>'name', NULL, (x->>'shared')::boolean, $2::integer, clock_timestamp(),
	x->>'host', (x->>'pid')::integer, x->>'note', (x->>'limit')::integer, (x->>'weight')::integer
FROM CAST($3::text AS jsonb) x ON CONFLICT DO NOTHING`

// waitsHere writes a request down that waits in this process only, and tells whoever wants
// to know.
func (a *attempt) waitsHere(ctx context.Context) {
	if !a.req.Wait {
		return
	}
	own, err := a.own.get(ctx)
	if err == nil {
		a.listed = true
		_, err = own.Query(listSQL, a.key, own.id, string(object(a.fields()))).Wait(ctx)
	}
	if err != nil { // the wait itself needs no row
		a.heard.Unavailable(ctx, failure(err))
		if ctx.Err() != nil {
			return // the server has not answered
		}
	}
	a.joined(ctx, 0)
}

// fields are what the server is told of a request.
func (a *attempt) fields() map[string]any {
	return map[string]any{"key": a.key, "owner": a.owner, "name": a.req.Name, "shared": a.req.Mode == driver.Shared,
		"ttl": a.req.TTL.Milliseconds(), "host": a.req.Host, "pid": a.req.PID, "note": a.req.Note,
		"limit": a.req.Limit, "weight": a.req.Units()}
}

// unlist takes the request off the list of waiters; when it was not granted, it
// returns when nobody can see it there any more.
func (a *attempt) unlist(granted bool) {
	remove := func() {
		ctx, cancel := context.WithTimeout(context.Background(), factsLimit)
		defer cancel()
		_, _ = a.ask(ctx, `DELETE FROM fencelock.queued WHERE owner = $1::text AND ticket IS NULL`, a.owner) // it goes with the process
	}
	if granted {
		go remove() // ends within factsLimit
	} else {
		remove()
	}
}

// joined notes that the engine answered, and tells whoever wants to know that the request
// waits.
func (a *attempt) joined(ctx context.Context, position int) {
	held := &driver.HeldError{Name: a.req.Name}
	if a.req.OnWait != nil {
		var err error
		if held, err = a.whoIsIn(ctx); err != nil {
			a.heard.Unavailable(ctx, failure(err))
		}
	}
	if _, trouble := a.heard.Last(); trouble == nil {
		a.heard.Held(held)
	}
	if a.req.OnWait == nil {
		return
	}
	if !a.told || a.req.Follow {
		a.told = true
		a.req.OnWait(driver.WaitInfo{Position: position, Held: held})
	}
}

// factsLimit bounds the questions about who is in the way.
const factsLimit = time.Second

const whoSQL = `SELECT owner, host, pid, note, (extract(epoch FROM since) * 1000000)::bigint,
	(extract(epoch FROM greatest(since + ttl * interval '1 ms', (SELECT not_before FROM fencelock.minimum WHERE key = $1::bigint))) * 1000000)::bigint
FROM (
	SELECT owner, host, pid, note, since, ttl, token FROM fencelock.held WHERE key = $1::bigint AND owner IS NOT NULL
	UNION ALL SELECT owner, host, pid, note, since, ttl, token FROM fencelock.sharer WHERE key = $1::bigint
) h
ORDER BY token LIMIT 1`

const minimumSQL = `SELECT (extract(epoch FROM not_before) * 1000000)::bigint
FROM fencelock.minimum WHERE key = $1::bigint AND not_before > clock_timestamp()`

// whoIsIn says who is in the way, or until when the name is closed, as far as the server
// knows within a moment. The answer is never nil.
func (a *attempt) whoIsIn(ctx context.Context) (*driver.HeldError, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), factsLimit)
	defer cancel()
	held := &driver.HeldError{Name: a.req.Name}
	rows, err := a.ask(ctx, whoSQL, a.key)
	if err != nil {
		return held, err
	}
	if len(rows) == 1 {
		r := rows[0]
		held.Owner, held.Since, held.Until = r.Text(0), r.Micros(4), r.Micros(5)
		held.Identity = driver.Identity{Host: r.Text(1), PID: int(r.Int(2)), Note: r.Text(3)}
		return held, nil
	}
	if rows, err := a.ask(ctx, minimumSQL, a.key); err == nil && len(rows) == 1 {
		held.Until = rows[0].Micros(0)
		return held, nil
	}
	all, err := a.serverLocks(ctx, a.key)
	if err != nil {
		return held, err
	}
	for _, l := range all {
		if l.granted && !l.ours {
			held.Identity, held.Since = l.identity(), l.since
			break
		}
	}
	return held, nil
}

// The key of a row of pg_locks.
const lockKey = `((l.classid::bigint << 32) | l.objid::bigint)`

// The rows of pg_locks that are advisory locks of this database, and those of them
// that are locks of one bigint.
const (
	ownLocks = `l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	lockRows = ownLocks + ` AND l.objsubid = 1`
)

// serverLock is what the server says about one lock, or one request for it.
type serverLock struct {
	key     int64
	shared  bool
	granted bool
	ours    bool // some engine's
	backend int32
	app     string
	user    string
	addr    string
	since   time.Time // when the wait, or the session's last statement, began
}

// sessionLocks are the sessions of engines and their server processes.
const sessionLocks = `(SELECT l.objid::bigint::integer AS id, l.pid FROM pg_locks l WHERE ` + ownLocks + ` AND l.objsubid = 2 AND l.classid = {session})`

// ticketLocks are the tickets of requests that wait.
const ticketLocks = `(SELECT l.objid::bigint AS id, l.pid FROM pg_locks l WHERE ` + ownLocks + ` AND l.objsubid = 2 AND l.classid = {ticket} AND l.mode = 'ExclusiveLock' AND l.granted)`

// locksSQL lists the advisory locks of one bigint, and who asks for them: of one key, or if it is
// NULL of all keys, those of engines aside.
var locksSQL = numbers.Replace(`SELECT ` + lockKey + `, l.mode = 'ShareLock', l.granted, s.id IS NOT NULL,
	l.pid, a.application_name, a.usename, coalesce(host(a.client_addr), 'a local socket'),
	(extract(epoch FROM coalesce(l.waitstart, a.query_start)) * 1000000)::bigint
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid LEFT JOIN ` + sessionLocks + ` s ON s.pid = l.pid
WHERE ` + lockRows + ` AND ($1::bigint IS NULL AND s.id IS NULL OR ` + lockKey + ` = $1::bigint) ORDER BY l.waitstart NULLS FIRST, l.pid`)

// serverLocks asks the server who has locked a key, a bigint or nil for all, and who waits.
func (e *Engine) serverLocks(ctx context.Context, key any) ([]serverLock, error) {
	rows, err := e.ask(ctx, locksSQL, key)
	if err != nil {
		return nil, err
	}
	all := make([]serverLock, len(rows))
	for i, r := range rows {
		all[i] = serverLock{key: r.Int(0), shared: r.Text(1) == "t", granted: r.Text(2) == "t", ours: r.Text(3) == "t",
			backend: int32(r.Int(4)), app: r.Text(5), user: r.Text(6), addr: r.Text(7), since: r.Micros(8)}
	}
	return all, nil
}

// identity says who has a lock that is not an engine's: a process of the server.
func (l *serverLock) identity() driver.Identity {
	app := l.app
	if app == "" {
		app = "a session"
	}
	return driver.Identity{Host: "the PostgreSQL server", PID: int(l.backend),
		Note: fmt.Sprintf("%s, user %s, from %s", app, l.user, l.addr)}
}
