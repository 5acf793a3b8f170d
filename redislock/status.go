package redislock

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// rawStatus is what the status script returns: the keys of a name.
type rawStatus struct {
	Time   string `json:"time"`   // microseconds
	Lock   string `json:"lock"`   // its text, or the beginning of another program's
	Left   string `json:"left"`   // as PTTL says it
	Seats  texts  `json:"seats"`  // members of a shared lock, each with its score
	Queue  texts  `json:"queue"`  // requests of living clients, each with its ticket
	Closed string `json:"closed"` // for how long a minimum hold runs, as PTTL says it
	Limit  string `json:"limit"`  // "limit version", if it was set for everybody
}

// texts is a list. An empty one comes as {}.
type texts []string

func (list *texts) UnmarshalJSON(raw []byte) error {
	if string(raw) == "{}" {
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(list))
}

// status is what the keys mean at the server's time. A name that nobody holds has the mode
// and the limit of those who wait for it.
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

// shared returns the limit of a shared lock of ours, which is the first of its members.
func (r rawStatus) shared() (limit int, ok bool) {
	if len(r.Seats) == 0 {
		return 0, false
	}
	text, ok := strings.CutPrefix(r.Seats[0], holderPrefix+"shared ")
	return int(redisfmt.Number(text)), ok
}

// sharers returns the shared holders whose time is not over. First come the ends of all, then
// the holders, each with its token.
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

// firstToken is less than any token, and greater than any time in milliseconds.
const firstToken = 1e14

// holder returns who holds a lock that is not shared.
func (r rawStatus) holder() (list []driver.Holder) {
	left := redisfmt.Number(r.Left)
	if left <= 0 && left != -1 { // -1 is for ever, and -2 that there is no such key
		return nil
	}
	text, ours := strings.CutPrefix(r.Lock, holderPrefix)
	h, ok := parseHolder(text)
	if !ours {
		text := r.Lock
		if len(r.Seats) > 0 { // a sorted set of somebody's
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
