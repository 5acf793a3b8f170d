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
	Time   texts  `json:"time"` // seconds and microseconds
	Lock   string `json:"lock"` // its text, or the beginning of another program's
	Left   string `json:"left"` // as PTTL says it
	Fence  string `json:"fence"`
	Shared texts  `json:"shared"` // tokens, each with the millisecond until which it holds
	Meta   texts  `json:"meta"`   // their holders
	Queue  texts  `json:"queue"`  // requests, each with its ticket
	Heard  texts  `json:"heard"`  // when the client of each was last heard of
}

// texts is a list. An empty one comes as {}.
type texts []string

func (list *texts) UnmarshalJSON(raw []byte) error {
	if string(raw) == "{}" {
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(list))
}

// now is the server's time in microseconds.
func (r rawStatus) now() int64 {
	if len(r.Time) < 2 {
		return 0
	}
	return redisfmt.Number(r.Time[0])*1_000_000 + redisfmt.Number(r.Time[1])
}

// status is what the keys mean at the server's time. A name that nobody holds has the mode
// and the limit of those who wait for it.
func (r rawStatus) status(name string) driver.Status {
	now := r.now()
	s := driver.Status{Name: name}
	s.Holders = r.holders(now)
	text, isShared := strings.CutPrefix(r.Lock, "fencelock shared ")
	if isShared {
		limit, _, _ := strings.Cut(text, " ")
		s.Mode, s.Limit = driver.Shared, int(redisfmt.Number(limit))
	}
	for i := 0; 2*i+1 < len(r.Queue) && i < len(r.Heard); i++ {
		w, req, ok := parseWaiter(r.Queue[2*i], redisfmt.Number(r.Queue[2*i+1]), redisfmt.Number(r.Heard[i]), now)
		if !ok {
			continue
		}
		if len(s.Holders)+len(s.Waiters) == 0 {
			s.Mode, s.Limit = req.Mode, req.Limit
		}
		w.Position = len(s.Waiters) + 1
		s.Waiters = append(s.Waiters, w)
	}
	last := redisfmt.Words{Rest: r.Fence}
	last.Next()
	last.Next()
	last.Next()
	if notBefore := last.Int(); notBefore > now {
		s.NotBefore = time.Now().Add(time.Duration(notBefore-now) * time.Microsecond)
	}
	if limit, ok := strings.CutPrefix(last.Next(), "l"); ok && s.Limit > 0 {
		s.Limit = int(redisfmt.Number(limit))
	}
	return s
}

// holders returns those whose time is not over.
func (r rawStatus) holders(now int64) (list []driver.Holder) {
	left := redisfmt.Number(r.Left)
	text, ours := strings.CutPrefix(r.Lock, "fencelock ")
	if !strings.HasPrefix(text, "shared ") || !ours {
		h, ok := parseHolder(text)
		if !ours {
			h, ok = driver.Holder{Owner: printable(r.Lock), Foreign: true}, true
		}
		h.TTL = time.Duration(max(left, 0)) * time.Millisecond
		if ok && (left > 0 || left == -1) { // -1 is for ever, and -2 that there is no such key
			list = append(list, h)
		}
		return list
	}
	// Who is over stays in the set until somebody's script looks at it.
	ends := map[int64]int64{}
	for i := 0; i+1 < len(r.Shared); i += 2 {
		ends[redisfmt.Number(r.Shared[i])] = redisfmt.Number(r.Shared[i+1])
	}
	for _, who := range r.Meta {
		h, ok := parseHolder(who)
		left := ends[h.Token] - now/1000
		if h.TTL = time.Duration(left) * time.Millisecond; ok && left > 0 {
			list = append(list, h)
		}
	}
	return list
}

// parseWaiter reads a waiter and leaves out one whose client is dead: it was not heard of
// for as long as the scripts are patient, nor has it joined since.
func parseWaiter(text string, ticket, heard, now int64) (w driver.Waiter, req driver.Request, ok bool) {
	in := redisfmt.Words{Rest: text}
	w.Owner = in.Next()
	req, w.Identity = readDesc(&in)
	w.Since, w.Weight = time.UnixMicro(ticket), req.Weight
	if heard >= 0 { // less says that it is suspended
		heard = max(heard, ticket)
	}
	return w, req, !in.Bad && heard+3*min(req.TTL, maxSilence).Microseconds() > now
}
