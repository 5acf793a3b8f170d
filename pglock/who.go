package pglock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var (
	// Of exclusive holders the newest: one before it that let go may not have
	// deleted its row yet.
	stmtWho = &statement{"who", `SELECT owner, host, pid, note, (extract(epoch FROM since) * 1000000)::bigint,
	(extract(epoch FROM greatest(u, (SELECT not_before FROM fencelock.minimum WHERE key = $1::bigint))) * 1000000)::bigint
FROM (
	SELECT h.*, greatest(h.until, s.until) AS u
	FROM fencelock.holder h LEFT JOIN fencelock.session s ON s.id = h.session WHERE h.key = $1::bigint AND h.session <> 0
) h
WHERE u > clock_timestamp() ORDER BY shared, CASE WHEN shared THEN token ELSE -token END LIMIT 1`}
	stmtMinimum = &statement{"minimum", `SELECT (extract(epoch FROM not_before) * 1000000)::bigint
FROM fencelock.minimum WHERE key = $1::bigint AND not_before > clock_timestamp()`}
)

// The key of a row of pg_locks.
const lockKey = `((l.classid::bigint << 32) | l.objid::bigint)`

// The rows of pg_locks that are advisory locks of this database, and those of them
// that are locks of one bigint.
const (
	ownLocks = `l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	lockRows = ownLocks + ` AND l.objsubid = 1`
)

// factsLimit bounds the questions about who is in the way.
const factsLimit = time.Second

// facts says who is in the way, as far as the server knows within a moment.
func (a *attempt) facts() *driver.HeldError {
	ctx, cancel := context.WithTimeout(context.Background(), factsLimit)
	defer cancel()
	h := a.whoHolds(ctx)
	switch {
	case h != nil && (h.Identity != driver.Identity{} || !h.Until.IsZero()):
		return h
	case a.held != nil:
		return a.held
	}
	return &driver.HeldError{Name: a.req.Name}
}

// whoNoted asks who wrote down that it holds the key, nil if nobody did.
func (a *attempt) whoNoted(ctx context.Context) *driver.HeldError {
	rows, err := a.ask(ctx, stmtWho, a.key)
	if err != nil || len(rows) == 0 {
		return nil
	}
	r := rows[0]
	return &driver.HeldError{Name: a.req.Name, Owner: r.text(0), Since: r.micros(4), Until: r.micros(5),
		Identity: driver.Identity{Host: r.text(1), PID: int(r.int(2)), Note: r.text(3)}}
}

// whoHolds asks who holds the key, or until when it is closed; nil if that cannot
// be said.
func (a *attempt) whoHolds(ctx context.Context) *driver.HeldError {
	if held := a.whoNoted(ctx); held != nil {
		return held
	}
	held := &driver.HeldError{Name: a.req.Name}
	if rows, err := a.ask(ctx, stmtMinimum, a.key); err == nil && len(rows) == 1 {
		held.Until = rows[0].micros(0)
		return held
	}
	all, err := a.serverLocks(ctx, []int64{a.key})
	if err != nil {
		return nil
	}
	for _, l := range all {
		if l.granted && !l.ours {
			held.Identity, held.Since = l.identity(), l.since
			return held
		}
	}
	return held
}

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

var stmtLocks = &statement{"locks", `SELECT ` + lockKey + `, l.mode = 'ShareLock', l.granted,
	EXISTS (SELECT FROM fencelock.session s WHERE s.backend = l.pid AND s.began = a.backend_start),
	l.pid, a.application_name, a.usename, coalesce(host(a.client_addr), 'a local socket'),
	(extract(epoch FROM coalesce(l.waitstart, a.query_start)) * 1000000)::bigint
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE ` + lockRows + ` AND ` + lockKey + ` = ANY (CAST($1::text AS bigint[])) ORDER BY l.waitstart NULLS FIRST, l.pid`}

// serverLocks asks the server who has locked keys and who waits for them.
func (e *Engine) serverLocks(ctx context.Context, keys []int64) ([]serverLock, error) {
	rows, err := e.ask(ctx, stmtLocks, array(keys))
	if err != nil {
		return nil, err
	}
	all := make([]serverLock, len(rows))
	for i, r := range rows {
		all[i] = serverLock{key: r.int(0), shared: r.text(1) == "t", granted: r.text(2) == "t", ours: r.text(3) == "t",
			backend: int32(r.int(4)), app: r.text(5), user: r.text(6), addr: r.text(7), since: r.micros(8)}
	}
	return all, nil
}

// array writes an array as the server reads it.
func array(keys []int64) string {
	b := []byte{'{'}
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Append(b, k)
	}
	return string(append(b, '}'))
}

// list writes an array of owners, which need no quotes, as the server reads it.
func list(owners []string) string { return "{" + strings.Join(owners, ",") + "}" }

// identity says who has a lock that is not an engine's: a process of the server.
func (l *serverLock) identity() driver.Identity {
	app := l.app
	if app == "" {
		app = "a session"
	}
	return driver.Identity{Host: "the PostgreSQL server", PID: int(l.backend),
		Note: fmt.Sprintf("%s, user %s, from %s", app, l.user, l.addr)}
}
