package redislock

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// lister implements List.
type lister struct {
	client *client
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
			begin = ls.client.base() + begin
		}
		err := ls.client.conn.Scan(ctx, ls.client.cfg.RetryTimeout, redisfmt.Literal(begin+ls.client.cfg.Prefix+"lock:"+q.Prefix)+"*", func(found []string) error {
			for _, key := range found {
				if name, ok := ls.client.nameOf(key); ok && q.Matches(name) {
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
		lock, err := ls.client.lockKey(name)
		if err != nil {
			continue // another program's key
		}
		calls = append(calls, redisconn.Call{Script: statusScript, Keys: []string{lock}, Args: []string{ls.client.base(), ls.client.alive(lock)}})
		asked = append(asked, name)
	}
	if len(calls) == 0 {
		return nil, nil, 0, nil
	}
	at = math.MaxInt64
	for i, r := range ls.client.conn.Eval(redisconn.WithDeadline(ctx, ls.client.cfg.RetryTimeout), calls) {
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

// rawStatus is the reply of the status script: the keys of a name.
type rawStatus struct {
	Time   string `json:"time"`   // microseconds
	Lock   string `json:"lock"`   // its value, or the beginning of another program's value
	Left   string `json:"left"`   // as returned by PTTL
	Seats  texts  `json:"seats"`  // members of a shared lock, each with its score
	Queue  texts  `json:"queue"`  // requests of live clients, each with its ticket
	Closed string `json:"closed"` // remaining minimum hold, as returned by PTTL
	Limit  string `json:"limit"`  // "limit version", if Resize has set one
}

// texts is a list of strings. An empty one is encoded as {}.
type texts []string

func (list *texts) UnmarshalJSON(raw []byte) error {
	if string(raw) == "{}" {
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(list))
}

// status converts the keys to a Status at the server's time. A name without holders has the mode
// and limit of its waiters.
func (r rawStatus) status(name string) driver.Status {
	s := driver.Status{Name: name}
	if limit, ok := r.shared(); ok {
		s.Mode, s.Limit, s.Holders = driver.Shared, limit, r.sharers()
	} else {
		s.Holders = r.holder()
	}
	for i := 0; i+1 < len(r.Queue); i += 2 {
		in := redisfmt.Words{Rest: r.Queue[i]}
		w := driver.Waiter{Owner: in.Next(), Since: time.UnixMicro(redisfmt.Number(r.Queue[i+1])), Position: len(s.Waiters) + 1}
		req, id := readDesc(&in)
		if in.Bad {
			continue
		}
		if len(s.Holders)+len(s.Waiters) == 0 {
			s.Mode, s.Limit = req.Mode, req.Limit
		}
		w.Identity, w.Weight = id, req.Weight
		s.Waiters = append(s.Waiters, w)
	}
	if left := redisfmt.Number(r.Closed); left > 0 {
		s.NotBefore = time.Now().Add(time.Duration(left) * time.Millisecond)
	}
	if limit, _, ok := strings.Cut(r.Limit, " "); ok && s.Limit > 0 {
		s.Limit = int(redisfmt.Number(limit))
	}
	return s
}

// shared returns the limit of a shared lock, which is stored in the first member.
func (r rawStatus) shared() (limit int, ok bool) {
	if len(r.Seats) == 0 {
		return 0, false
	}
	text, ok := strings.CutPrefix(r.Seats[0], holderPrefix+"shared ")
	return int(redisfmt.Number(text)), ok
}

// sharers returns the shared holders that have not expired. The members list all expiry times
// first, then the holders, each with its token.
func (r rawStatus) sharers() (list []driver.Holder) {
	now, ends := redisfmt.Number(r.Time)/1000, map[string]int64{}
	for i := 2; i+1 < len(r.Seats); i += 2 {
		if redisfmt.Number(r.Seats[i+1]) < firstToken {
			ends[r.Seats[i]] = redisfmt.Number(r.Seats[i+1])
			continue
		}
		owner, desc, _ := strings.Cut(r.Seats[i], " ")
		h, ok := parseHolder(owner + " " + r.Seats[i+1] + " " + desc)
		left := ends[r.Seats[i+1]] - now
		if h.TTL = time.Duration(left) * time.Millisecond; ok && left > 0 {
			list = append(list, h)
		}
	}
	return list
}

// firstToken is smaller than any token and larger than any time in milliseconds.
const firstToken = 1e14

// holder returns the holder of a lock that is not shared.
func (r rawStatus) holder() (list []driver.Holder) {
	left := redisfmt.Number(r.Left)
	if left <= 0 && left != -1 { // PTTL: -1 does not expire, -2 no such key
		return nil
	}
	text, ours := strings.CutPrefix(r.Lock, holderPrefix)
	h, ok := parseHolder(text)
	if !ours {
		text := r.Lock
		if len(r.Seats) > 0 { // another program's sorted set
			text = r.Seats[0]
		}
		h, ok = driver.Holder{Owner: printable(text), Foreign: true}, true
	}
	h.TTL = time.Duration(max(left, 0)) * time.Millisecond
	if ok {
		list = append(list, h)
	}
	return list
}
