package pglock

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/fencelock/fencelock/driver"
)

// The names that a query chooses: $1 is the prefix, or the whole name if $2.
const chosen = `CASE WHEN $2::boolean THEN name = $1::text ELSE starts_with(name, $1::text) END`

var (
	stmtHolders = &statement{"holders", `SELECT h.name, h.key, h.owner, h.token, h.shared, h.seats,
	(extract(epoch FROM h.since) * 1000000)::bigint,
	greatest(1, extract(epoch FROM greatest(h.until, s.until) - clock_timestamp()) * 1000)::bigint,
	h.host, h.pid, h.note, s.backend, h.weight, (SELECT r.seats FROM fencelock.resized r WHERE r.key = h.key)
FROM fencelock.holder h LEFT JOIN fencelock.session s ON s.id = h.session
WHERE h.session <> 0 AND greatest(h.until, s.until) > clock_timestamp() AND ` + chosen + ` ORDER BY h.token`}
	// A shared request waits with the shared lock or the queue's in hand until it has a row among the holders.
	stmtWaiters = &statement{"waiters", `WITH l AS MATERIALIZED (
	SELECT l.pid, l.granted, l.waitstart, l.objsubid = 1 AS plain, CASE l.objsubid WHEN 1 THEN ` + lockKey + ` ELSE l.objid::bigint END AS key
	FROM pg_locks l WHERE ` + ownLocks + ` AND (l.objsubid = 1 OR l.objsubid = 2 AND l.classid = 1717923429)
)
SELECT w.name, w.key, w.owner, (extract(epoch FROM w.since) * 1000000)::bigint, w.host, w.pid, w.note, w.backend, w.shared,
	w.seats, w.weight, (SELECT r.seats FROM fencelock.resized r WHERE r.key = w.key)
FROM fencelock.waiter w JOIN fencelock.session s ON s.id = w.session
JOIN LATERAL pg_stat_get_activity(s.backend) a ON a.backend_start = s.began
LEFT JOIN LATERAL (SELECT l.pid, l.waitstart FROM l
	WHERE l.pid = w.backend AND (w.shared OR NOT l.granted)
		AND l.key = CASE WHEN l.plain THEN w.key ELSE hashint8(w.key)::bigint & 4294967295 END
	ORDER BY l.waitstart LIMIT 1) l ON true
WHERE (w.backend = 0 OR l.pid IS NOT NULL) AND NOT EXISTS (SELECT FROM fencelock.holder h WHERE h.owner = w.owner)
	AND ` + chosen + ` ORDER BY coalesce(l.waitstart, w.since), w.since`}
	stmtMinimums = &statement{"minimums", `SELECT name, key, (extract(epoch FROM not_before) * 1000000)::bigint
FROM fencelock.minimum WHERE not_before > clock_timestamp() AND ` + chosen}
)

// listing is a List under way.
type listing struct {
	engine *Engine
	all    map[string]*driver.Status
	keys   map[int64]string         // the name to show for a key
	known  map[int64]map[int32]bool // server processes of a key that are shown already
}

// List shows who holds and who waits: what engines wrote down, up to a second
// late, and whoever else has locked the same keys. Names that only others use
// are shown when they are asked for exactly, since the server knows keys only.
func (e *Engine) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	l := &listing{engine: e, all: map[string]*driver.Status{}, keys: map[int64]string{}, known: map[int64]map[int32]bool{}}
	if q.Exact {
		if err := driver.CheckName(q.Prefix); err != nil {
			return nil, nil // nobody can hold it
		}
		l.keys[keyOf(q.Prefix)] = q.Prefix
	}
	for _, part := range []struct {
		stmt *statement
		add  func(row)
	}{{stmtHolders, l.holder}, {stmtWaiters, l.waiter}, {stmtMinimums, l.minimum}} {
		rows, err := e.ask(ctx, part.stmt, q.Prefix, q.Exact)
		if err != nil {
			return nil, unavailable(err)
		}
		for _, r := range rows {
			part.add(r)
		}
	}
	if err := l.strangers(ctx); err != nil {
		return nil, unavailable(err)
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

// status returns the status of a name, which has this key.
func (l *listing) status(name string, key int64) *driver.Status {
	s := l.all[name]
	if s == nil {
		s = &driver.Status{Name: name}
		l.all[name] = s
		l.keys[key] = name
	}
	return s
}

// show notes that a server process is shown under a key.
func (l *listing) show(key int64, backend int32) {
	if l.known[key] == nil {
		l.known[key] = map[int32]bool{}
	}
	l.known[key][backend] = true
}

func (l *listing) holder(r row) {
	s := l.status(r.text(0), r.int(1))
	if r.text(4) == "t" {
		s.Mode = driver.Shared
		limited(s, r.int(5), r.int(13))
	} else {
		s.Holders = nil // those let go, and have not deleted their rows yet
	}
	s.Holders = append(s.Holders, driver.Holder{
		Owner: r.text(2), Token: r.int(3), Since: r.micros(6), TTL: r.millis(7),
		Identity: driver.Identity{Host: r.text(8), PID: int(r.int(9)), Note: r.text(10)},
		Weight:   weight(r.int(5), r.int(12)),
	})
	l.show(r.int(1), int32(r.int(11)))
}

// limited notes the limit in force: what the request asked for, unless it was
// resized.
func limited(s *driver.Status, seats, resized int64) {
	if s.Limit == 0 && seats > 0 {
		s.Limit = int(cmp.Or(resized, seats))
	}
}

// weight is how much of a limit a request takes, 0 if it has none.
func weight(seats, units int64) int {
	if seats == 0 {
		return 0
	}
	return int(units)
}

func (l *listing) waiter(r row) {
	s := l.status(r.text(0), r.int(1))
	if r.text(8) == "t" && len(s.Holders) == 0 {
		s.Mode = driver.Shared
		limited(s, r.int(9), r.int(11))
	}
	s.Waiters = append(s.Waiters, driver.Waiter{
		Owner: r.text(2), Since: r.micros(3),
		Identity: driver.Identity{Host: r.text(4), PID: int(r.int(5)), Note: r.text(6)},
		Weight:   weight(r.int(9), r.int(10)),
	})
	l.show(r.int(1), int32(r.int(7)))
}

func (l *listing) minimum(r row) {
	l.status(r.text(0), r.int(1)).NotBefore = r.micros(2)
}

// strangers adds what the server knows and nobody wrote down: sessions that are no
// engine's, and engines' locks that are younger than their notes.
func (l *listing) strangers(ctx context.Context) error {
	if len(l.keys) == 0 {
		return nil
	}
	locks, err := l.engine.serverLocks(ctx, slices.Collect(maps.Keys(l.keys)))
	if err != nil {
		return err
	}
	for _, o := range locks {
		if l.known[o.key][o.backend] || o.ours && !o.granted {
			continue
		}
		s := l.status(l.keys[o.key], o.key)
		id := driver.Identity{}
		if !o.ours {
			id = o.identity()
		}
		if o.granted && o.shared && len(s.Holders) == 0 {
			s.Mode = driver.Shared
		}
		if o.granted {
			s.Holders = append(s.Holders, driver.Holder{Identity: id, Since: o.since, Foreign: !o.ours})
		} else {
			s.Waiters = append(s.Waiters, driver.Waiter{Identity: id, Since: o.since, Owner: strconv.Itoa(int(o.backend))})
		}
	}
	return nil
}

var stmtBeside = &statement{"beside", `SELECT DISTINCT o.name FROM fencelock.holder h JOIN fencelock.holder o ON o.session = h.session
WHERE h.key = $1::bigint AND h.session <> 0 AND o.key <> h.key ORDER BY 1`}

// Beside returns the other names, in order, that are held on the connections of
// name's holders: those that a Break by force would take away as well.
func (e *Engine) Beside(ctx context.Context, name string) ([]string, error) {
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	rows, err := e.ask(ctx, stmtBeside, keyOf(name))
	if err != nil {
		return nil, unavailable(err)
	}
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.text(0)
	}
	return names, nil
}
