package redislock

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/words"
)

// List returns the names that are held, waited for or closed by a minimum hold. Unless
// the name is exact it looks at those that clients of this library have held, or waited
// for, for longer than half a second; with Scan, or where the user may not read their
// index, it looks through all keys of the server instead. It shows at most 1,000
// waiters of a name.
func (e *Engine) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	e.remark()
	names, err := e.names(ctx, q)
	if err != nil {
		return nil, err
	}
	var list []driver.Status
	for part := range slices.Chunk(slices.Sorted(maps.Keys(names)), indexSize) {
		some, free, at, err := e.statuses(ctx, part)
		if err != nil {
			return nil, unavailable(err)
		}
		list = append(list, some...)
		if len(free) > 0 && !q.Exact && !q.Scan {
			e.dropNames(ctx, free, at)
		}
	}
	return list, nil
}

// names collects the names that may have something to show.
func (e *Engine) names(ctx context.Context, q driver.Query) (map[string]bool, error) {
	names := map[string]bool{}
	if q.Exact {
		names[q.Prefix] = true
		return names, driver.CheckName(q.Prefix)
	}
	if !q.Scan {
		if err := e.indexed(ctx, q, names); !denied(err) {
			return names, unavailable(err)
		}
	}
	return names, unavailable(e.scan(ctx, q, names))
}

// scan collects names by a look at all keys.
func (e *Engine) scan(ctx context.Context, q driver.Query, names map[string]bool) error {
	literal := words.Literal(e.cfg.Prefix + "lock:" + q.Prefix)
	for _, prefix := range [...]string{"", "queue:", "fence:"} {
		for _, brace := range [...]string{"", "{"} {
			if prefix == "" && brace != "" {
				continue
			}
			err := e.conn.Scan(ctx, prefix+brace+literal+"*", func(found []string) error {
				for _, key := range found {
					if name, ok := e.nameOf(key); ok && q.Matches(name) {
						names[name] = true
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// statuses asks for many names at once, and returns those apart that are free, with
// the server's time when the first of them was.
func (e *Engine) statuses(ctx context.Context, names []string) (list []driver.Status, free []string, at int64, err error) {
	calls := make([]Call, 0, len(names))
	asked := make([]string, 0, len(names))
	for _, name := range names {
		ks, err := e.keysOf(name)
		if err != nil {
			continue // a key of some other program
		}
		calls = append(calls, Call{Script: statusScript, Keys: ks.all()})
		asked = append(asked, name)
	}
	if len(calls) == 0 {
		return nil, nil, 0, nil
	}
	at = math.MaxInt64
	for i, r := range e.conn.Eval(ctx, calls) {
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
			free, at = append(free, s.Name), min(at, number(raw.Now))
		}
	}
	return list, free, at, nil
}

// rawStatus is what the status script returns. An empty list comes as {}.
type rawStatus struct {
	Now       string          `json:"now"`
	Limit     string          `json:"limit"`
	Resized   string          `json:"resized"` // the limit for everybody, if there is one
	NotBefore string          `json:"notbefore"`
	Holders   json.RawMessage `json:"holders"` // text, end in milliseconds, foreign text
	Waiters   json.RawMessage `json:"waiters"` // text, ticket, last heard of
}

func rows(raw json.RawMessage) (list [][]string) {
	_ = json.Unmarshal(raw, &list) // {} leaves it empty
	return list
}

func (r rawStatus) status(name string) driver.Status {
	now := number(r.Now)
	s := driver.Status{Name: name}
	if r.Limit != "" {
		s.Mode, s.Limit = driver.Shared, int(number(r.Limit))
	}
	if nb := number(r.NotBefore); nb > now {
		s.NotBefore = time.Now().Add(time.Duration(nb-now) * time.Microsecond)
	}
	for _, row := range rows(r.Holders) {
		if h, ok := holder(row, now); ok {
			s.Holders = append(s.Holders, h)
		}
	}
	for _, row := range rows(r.Waiters) {
		w, req, ok := parseWaiter(row, now)
		if !ok {
			continue
		}
		if len(s.Holders)+len(s.Waiters) == 0 {
			s.Mode, s.Limit = req.Mode, req.Limit
		}
		w.Position = len(s.Waiters) + 1
		s.Waiters = append(s.Waiters, w)
	}
	if s.Limit > 0 && r.Resized != "" {
		s.Limit = int(number(r.Resized))
	}
	return s
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func holder(row []string, now int64) (h driver.Holder, ok bool) {
	if len(row) < 2 {
		return h, false
	}
	if row[0] == "" && len(row) > 2 {
		h, ok = driver.Holder{Owner: printable(row[2]), Foreign: true}, true
	} else {
		h, ok = parseHolder(row[0])
	}
	end := number(row[1])
	if end >= 0 {
		h.TTL = time.Duration(end-now/1000) * time.Millisecond
		ok = ok && h.TTL > 0
	}
	return h, ok
}

// parseWaiter reads a waiter and leaves out one whose client is dead.
func parseWaiter(row []string, now int64) (w driver.Waiter, req driver.Request, ok bool) {
	if len(row) < 3 {
		return w, req, false
	}
	in := words.Words{Rest: row[0]}
	w.Owner = in.Next()
	req, w.Identity = readDesc(&in)
	w.Since, w.Weight = time.UnixMicro(number(row[1])), req.Weight
	heard := number(row[2])
	return w, req, !in.Bad && heard+3*req.TTL.Microseconds() > now
}
