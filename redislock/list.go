package redislock

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// lister implements List.
type lister struct {
	*client
	index  *nameIndex
	marker *marker
}

// List returns what a query matches. It removes free names from the index so that the index does
// not grow. Exact and scanned names need not be in the index, so they are left alone.
func (ls *lister) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	ls.marker.extend()
	names, err := ls.names(ctx, q)
	if err != nil {
		return nil, err
	}
	var list []driver.Status
	for part := range slices.Chunk(slices.Sorted(maps.Keys(names)), nameindex.Size) {
		some, free, at, err := ls.statuses(ctx, part)
		if err != nil {
			return nil, unavailable(err)
		}
		list = append(list, some...)
		if len(free) > 0 && !q.Exact && !q.Scan {
			ls.index.drop(ctx, free, at)
		}
	}
	return list, nil
}

// names collects the names that may be held, waited for or closed.
func (ls *lister) names(ctx context.Context, q driver.Query) (map[string]bool, error) {
	names := map[string]bool{}
	if q.Exact {
		names[q.Prefix] = true
		return names, driver.CheckName(q.Prefix)
	}
	if !q.Scan {
		if err := ls.index.read(ctx, q, names); !redisconn.Denied(err) {
			return names, unavailable(err)
		}
	}
	return names, unavailable(ls.scan(ctx, q, names))
}

// scan collects names by scanning all keys. It also looks for queues and minimum holds, which can
// exist while the lock key does not.
func (ls *lister) scan(ctx context.Context, q driver.Query, names map[string]bool) error {
	for _, begin := range [...]string{"", "queue:", "queue:{", "closed:", "closed:{"} {
		if begin != "" {
			begin = ls.base() + begin
		}
		err := ls.conn.Scan(ctx, ls.cfg.RetryTimeout, redisfmt.Literal(begin+ls.cfg.Prefix+"lock:"+q.Prefix)+"*", func(found []string) error {
			for _, key := range found {
				if name, ok := ls.nameOf(key); ok && q.Matches(name) {
					names[name] = true
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// statuses queries many names at once. It returns the free ones separately, with the server time of
// the first of them.
func (ls *lister) statuses(ctx context.Context, names []string) (list []driver.Status, free []string, at int64, err error) {
	calls := make([]redisconn.Call, 0, len(names))
	asked := make([]string, 0, len(names))
	for _, name := range names {
		lock, err := ls.lockKey(name)
		if err != nil {
			continue // another program's key
		}
		calls = append(calls, redisconn.Call{Script: statusScript, Keys: []string{lock}, Args: []string{ls.base(), ls.alive(lock)}})
		asked = append(asked, name)
	}
	if len(calls) == 0 {
		return nil, nil, 0, nil
	}
	at = math.MaxInt64
	for i, r := range ls.conn.Eval(redisconn.WithDeadline(ctx, ls.cfg.RetryTimeout), calls) {
		if r.Err != nil {
			return nil, nil, 0, r.Err
		}
		var raw rawStatus
		if err := json.Unmarshal([]byte(r.Text), &raw); err != nil {
			return nil, nil, 0, malformed(r.Text)
		}
		s := raw.status(asked[i])
		if len(s.Holders) > 0 || len(s.Waiters) > 0 || !s.NotBefore.IsZero() {
			list = append(list, s)
		} else {
			free, at = append(free, s.Name), min(at, redisfmt.Number(raw.Time))
		}
	}
	return list, free, at, nil
}
