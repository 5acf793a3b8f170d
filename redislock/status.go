package redislock

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

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
