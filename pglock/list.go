package pglock

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
)

// chosen selects names: $1 is the prefix, or the whole name if $2.
const chosen = `CASE WHEN $2::boolean THEN name = $1::text ELSE starts_with(name, $1::text) END`

// renewedSQL is the last known renewal of holder h; b is the row of its session.
const renewedSQL = `coalesce(h.seen, greatest(h.since, b.at))`

// listedSQL selects holders: one that vanished is listed until its lease expires.
const listedSQL = `(s.id IS NOT NULL OR coalesce(h.seen, b.at) IS NULL OR ` + renewedSQL + ` + h.ttl * interval '1 ms' > clock_timestamp())`

var (
	holdersSQL = numbers.Replace(`SELECT h.name, h.key, h.owner, h.token, h.shared, h.seats,
	(extract(epoch FROM h.since) * 1000000)::bigint,
	greatest(1, least(h.ttl, h.ttl - extract(epoch FROM clock_timestamp() - ` + renewedSQL + `) * 1000))::bigint,
	h.host, h.pid, h.note, s.pid, h.weight, (SELECT r.seats FROM fencelock.resized r WHERE r.key = h.key), h.ttl
FROM (
	SELECT name, key, owner, token, false AS shared, 0 AS seats, since, ttl, host, pid, note, session, 0 AS weight, seen
	FROM fencelock.held WHERE owner IS NOT NULL AND ` + chosen + `
	UNION ALL SELECT name, key, owner, token, true, seats, since, ttl, host, pid, note, session, weight, seen
	FROM fencelock.sharer WHERE ` + chosen + `
) h
LEFT JOIN ` + sessionLocks + ` s ON s.id = h.session
LEFT JOIN fencelock.beat b ON b.session = h.session
WHERE ` + listedSQL + ` ORDER BY h.token`)
	waitersSQL = numbers.Replace(`SELECT w.name, w.key, w.owner, (extract(epoch FROM w.since) * 1000000)::bigint, w.host, w.pid, w.note, s.pid, w.shared,
	w.seats, w.weight, (SELECT r.seats FROM fencelock.resized r WHERE r.key = w.key)
FROM fencelock.queued w JOIN ` + sessionLocks + ` s ON s.id = w.session
LEFT JOIN ` + ticketLocks + ` t ON t.id = w.ticket & 2147483647 AND t.pid = s.pid
WHERE ` + chosen + ` AND (w.ticket IS NULL OR t.id IS NOT NULL) ORDER BY w.ticket NULLS LAST, w.since`)
	minimumsSQL = `SELECT name, key, (extract(epoch FROM not_before) * 1000000)::bigint
FROM fencelock.minimum WHERE not_before > clock_timestamp() AND ` + chosen
)

// listing is one call of List.
type listing struct {
	own  *ownSession
	all  map[string]*driver.Status
	keys map[int64]string // the name to show for a key
}

// List returns the names that are held, waited for or closed by a minimum hold, with the holders
// and waiters of all clients. It includes other programs that lock the same keys. Names that only
// other programs use are listed only by an exact query, because the server knows their keys only.
func (e *Engine) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	l := &listing{own: e.own, all: map[string]*driver.Status{}, keys: map[int64]string{}}
	if q.Exact {
		if err := driver.CheckName(q.Prefix); err != nil {
			return nil, nil // an invalid name cannot be held
		}
		l.keys[keyOf(q.Prefix)] = q.Prefix
	}
	for _, part := range []struct {
		sql string
		add func(pipe.Row)
	}{{holdersSQL, l.addHolder}, {waitersSQL, l.addWaiter}, {minimumsSQL, l.addMinimum}} {
		rows, err := l.own.ask(ctx, part.sql, textPrefix(q.Prefix), q.Exact)
		if err != nil {
			return nil, failure(err)
		}
		for _, r := range rows {
			if strings.HasPrefix(r.Text(0), q.Prefix) {
				part.add(r)
			}
		}
	}
	if err := l.addForeign(ctx, q); err != nil {
		return nil, failure(err)
	}
	var list []driver.Status
	for _, name := range slices.Sorted(maps.Keys(l.all)) {
		s := l.all[name]
		for i := range s.Waiters {
			s.Waiters[i].Position = i + 1
		}
		list = append(list, *s)
	}
	return list, nil
}

// textPrefix returns the longest valid text that prefix starts with: a prefix may end within a
// character.
func textPrefix(prefix string) string {
	text, _, _ := strings.Cut(strings.ToValidUTF8(prefix, "\x00"), "\x00")
	return text
}

// status returns the status of a name with this key.
func (l *listing) status(name string, key int64) *driver.Status {
	s := l.all[name]
	if s == nil {
		s = &driver.Status{Name: name}
		l.all[name] = s
		l.keys[key] = name
	}
	return s
}

// addHolder adds a row of holdersSQL.
func (l *listing) addHolder(r pipe.Row) {
	s := l.status(r.Text(0), r.Int(1))
	if r.Text(4) == "t" {
		s.Mode = driver.Shared
		limited(s, r.Int(5), r.Int(13))
	}
	s.Holders = append(s.Holders, driver.Holder{
		Owner: r.Text(2), Token: r.Int(3), Since: r.Micros(6), TTL: r.Millis(7), Lease: r.Millis(14),
		Identity: readIdentity(r, 8),
		Weight:   weight(r.Int(5), r.Int(12)),
	})
}

// limited sets the limit in force: the requests' limit, unless Resize has set another.
func limited(s *driver.Status, seats, resized int64) {
	if s.Limit == 0 && seats > 0 {
		s.Limit = int(cmp.Or(resized, seats))
	}
}

// weight returns how much of a limit a request uses, 0 if it has no limit.
func weight(seats, units int64) int {
	if seats == 0 {
		return 0
	}
	return int(units)
}

// addWaiter adds a row of waitersSQL.
func (l *listing) addWaiter(r pipe.Row) {
	s := l.status(r.Text(0), r.Int(1))
	if r.Text(8) == "t" && len(s.Holders) == 0 {
		s.Mode = driver.Shared
		limited(s, r.Int(9), r.Int(11))
	}
	s.Waiters = append(s.Waiters, driver.Waiter{
		Owner: r.Text(2), Since: r.Micros(3),
		Identity: readIdentity(r, 4),
		Weight:   weight(r.Int(9), r.Int(10)),
	})
}

// addMinimum adds a row of minimumsSQL.
func (l *listing) addMinimum(r pipe.Row) {
	l.status(r.Text(0), r.Int(1)).NotBefore = r.Micros(2)
}

// addForeign adds advisory locks of other programs, for keys whose names are known.
func (l *listing) addForeign(ctx context.Context, q driver.Query) error {
	var key any
	if q.Exact {
		key = keyOf(q.Prefix)
	} else if len(l.keys) == 0 {
		return nil
	}
	locks, err := l.own.serverLocks(ctx, key)
	if err != nil {
		return err
	}
	for _, o := range locks {
		name, ok := l.keys[o.key]
		if !ok || o.ours {
			continue
		}
		s := l.status(name, o.key)
		id := o.identity()
		if o.granted && o.shared && len(s.Holders) == 0 {
			s.Mode = driver.Shared
		}
		if o.granted {
			s.Holders = append(s.Holders, driver.Holder{Identity: id, Since: o.since, Foreign: true})
		} else {
			s.Waiters = append(s.Waiters, driver.Waiter{Identity: id, Since: o.since, Owner: strconv.Itoa(int(o.backend))})
		}
	}
	return nil
}
