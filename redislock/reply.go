package redislock

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/words"
)

// malformed is the error for a reply that no script of ours makes.
func malformed(text string) error {
	return fmt.Errorf("%w: unexpected answer %.100q", driver.ErrUnavailable, text)
}

// blockedInfo is what a waiter is told about a name.
type blockedInfo struct {
	next time.Duration // when time alone may change something; negative: unknown
	why  string        // what is in the way if it is not one of our holders
	text string        // the holder
}

// What is in the way, as the scripts say it.
const (
	whyForeign    = "f"
	whyQuarantine = "q"
	whyMinimum    = "m"
)

func readBlocked(w *redisfmt.Words) blockedInfo {
	return blockedInfo{next: w.Millis(), why: w.Next(), text: w.Rest}
}

// unknown says that the lock is held in a format that this version cannot read.
func (o blockedInfo) unknown() error {
	if o.why != whyForeign || !strings.HasPrefix(o.text, "fencelock:") {
		return nil
	}
	held, _, _ := strings.Cut(o.text, " ")
	return fmt.Errorf("%w: the lock is held in the format %s of another version of this program, which knows %s alone; use one version", driver.ErrConfig, printable(held), format)
}

// trouble says why the server itself grants nothing, if it does not.
func (o blockedInfo) trouble() error {
	if o.why != whyQuarantine {
		return nil
	}
	return fmt.Errorf("%w: the server may have forgotten its locks and grants nothing until %s",
		driver.ErrUnavailable, time.Now().Add(o.next).Format(time.RFC3339))
}

// held says who is in the way.
func (o blockedInfo) held(name string) *driver.HeldError {
	held := &driver.HeldError{Name: name}
	if o.next >= 0 {
		held.Until = time.Now().Add(o.next)
	}
	switch o.why {
	case whyForeign:
		held.Owner = printable(o.text)
	case whyMinimum:
		held.Owner, held.Note = "nobody", "the minimum hold of its last holder runs"
	default:
		if h, ok := parseHolder(strings.TrimPrefix(o.text, holderPrefix)); ok {
			held.Owner, held.Identity, held.Since = h.Owner, h.Identity, h.Since
		}
	}
	return held
}

// printable keeps what some other program stored fit for one line.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, text)
}

// describe is what the scripts know of a request beside its owner.
func describe(client string, req driver.Request) string {
	return fmt.Sprintf("%s %s %d %d %d %d %d %s %s", client, redisfmt.Letter(req.Mode), req.Limit, req.Units(),
		redisfmt.CeilMillis(req.TTL), redisfmt.CeilMillis(req.MinHold), req.PID, redisfmt.HostWord(words.Host(req.Identity)), req.Note)
}

// parseHolder reads "owner token desc". A token is the time of the grant, unless the server's
// clock was set back.
func parseHolder(text string) (h driver.Holder, ok bool) {
	w := redisfmt.Words{Rest: text}
	h.Owner, h.Token = w.Next(), w.Int()
	h.Since = time.UnixMicro(h.Token)
	var req driver.Request
	req, h.Identity = readDesc(&w)
	h.Lease, h.Weight = req.TTL, req.Weight
	return h, !w.Bad
}

// readDesc reads what describe wrote. A request with a limit has a weight.
func readDesc(w *redisfmt.Words) (req driver.Request, id driver.Identity) {
	w.Next() // the client
	req.Mode = redisfmt.ModeOf(w.Next())
	req.Limit, req.Weight = int(w.Int()), int(w.Int())
	if req.Limit == 0 {
		req.Weight = 0
	}
	req.TTL = w.Millis()
	w.Int() // the minimum hold
	id.PID = int(w.Int())
	words.SetHost(&id, redisfmt.Host(w.Next()))
	id.Note = w.Rest
	return req, id
}
