package pglock

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/identity"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
)

// lockKey is the key of a row of pg_locks.
const lockKey = `((l.classid::bigint << 32) | l.objid::bigint)`

// ownLocks selects the advisory locks of this database in pg_locks; lockRows selects those with one
// bigint key.
const (
	ownLocks = `l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	lockRows = ownLocks + ` AND l.objsubid = 1`
)

// serverLock is a lock, or a request for one, as the server reports it.
type serverLock struct {
	key     int64
	shared  bool
	granted bool
	ours    bool // of a session of an engine
	backend int32
	app     string
	user    string
	addr    string
	since   time.Time // when the wait or the session's last statement began
}

// sessionLocks are the engines' sessions and their server processes.
const sessionLocks = `(SELECT l.objid::bigint::integer AS id, l.pid FROM pg_locks l WHERE ` + ownLocks + ` AND l.objsubid = 2 AND l.classid = {session})`

// ticketLocks are the tickets of waiting requests.
const ticketLocks = `(SELECT l.objid::bigint AS id, l.pid FROM pg_locks l WHERE ` + ownLocks + ` AND l.objsubid = 2 AND l.classid = {ticket} AND l.mode = 'ExclusiveLock' AND l.granted)`

// locksSQL lists the advisory locks with one bigint key, held and requested: those of one key, or,
// if $1 is NULL, those of all keys without the engines' own.
var locksSQL = numbers.Replace(`SELECT ` + lockKey + `, l.mode = 'ShareLock', l.granted, s.id IS NOT NULL,
	l.pid, a.application_name, a.usename, coalesce(host(a.client_addr), 'a local socket'),
	(extract(epoch FROM coalesce(l.waitstart, a.query_start)) * 1000000)::bigint
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid LEFT JOIN ` + sessionLocks + ` s ON s.pid = l.pid
WHERE ` + lockRows + ` AND ($1::bigint IS NULL AND s.id IS NULL OR ` + lockKey + ` = $1::bigint) ORDER BY l.waitstart NULLS FIRST, l.pid`)

// serverLocks queries who holds a key and who waits for it. A nil key means all keys.
func (o *ownSession) serverLocks(ctx context.Context, key any) ([]serverLock, error) {
	rows, err := o.ask(ctx, locksSQL, key)
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

// identity describes the server process that has a lock which is not an engine's.
func (l *serverLock) identity() driver.Identity {
	app := l.app
	if app == "" {
		app = "a session"
	}
	return driver.Identity{Host: "the PostgreSQL server", PID: int(l.backend),
		Note: fmt.Sprintf("%s, user %s, from %s", app, l.user, l.addr)}
}

// readIdentity reads three columns of our tables: host, pid and note.
func readIdentity(r pipe.Row, first int) (id driver.Identity) {
	identity.ParseHostText(&id, r.Text(first))
	id.PID, id.Note = int(r.Int(first+1)), r.Text(first+2)
	return id
}
