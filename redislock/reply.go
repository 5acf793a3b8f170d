package redislock

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// malformed is the error for a reply that none of our scripts returns.
func malformed(text string) error {
	return fmt.Errorf("%w: unexpected reply of a lock script: %.100q", driver.ErrUnavailable, text)
}

// blockedInfo is what the scripts report about a name that is not free.
type blockedInfo struct {
	next time.Duration // until the state may change without an event; negative: unknown
	why  string        // what is in the way if it is not one of our holders
	text string        // the holder
}

// The values of blockedInfo.why, as the scripts return them.
const (
	whyForeign    = "f"
	whyQuarantine = "q"
	whyMinimum    = "m"
)

func readBlocked(w *redisfmt.Words) blockedInfo {
	return blockedInfo{next: w.Millis(), why: w.Next(), text: w.Rest}
}

// unknown returns an error if the lock is held in a format that this version cannot read.
func (o blockedInfo) unknown() error {
	if o.why != whyForeign || !strings.HasPrefix(o.text, "fencelock:") {
		return nil
	}
	held, _, _ := strings.Cut(o.text, " ")
	return fmt.Errorf("%w: the lock is held in format %s of another fencelock version, and this version reads only %s; use one version", driver.ErrConfig, printable(held), format)
}

// trouble returns an error if the server grants nothing because of the quarantine.
func (o blockedInfo) trouble() error {
	if o.why != whyQuarantine {
		return nil
	}
	return fmt.Errorf("%w: the server may have lost its data, and grants nothing until %s",
		driver.ErrUnavailable, time.Now().Add(o.next).Format(time.RFC3339))
}

// held returns the error that says what is in the way.
func (o blockedInfo) held(name string) *driver.HeldError {
	held := &driver.HeldError{Name: name}
	if o.next >= 0 {
		held.Until = time.Now().Add(o.next)
	}
	switch o.why {
	case whyForeign:
		held.Owner = printable(o.text)
	case whyMinimum:
		held.Owner, held.Note = "nobody", "the minimum hold of its last holder has not ended"
	default:
		if h, ok := parseHolder(strings.TrimPrefix(o.text, holderPrefix)); ok {
			held.Owner, held.Identity, held.Since = h.Owner, h.Identity, h.Since
		}
	}
	return held
}

// printable makes text of another program fit for one line.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, text)
}

// describe returns a request's description, which the scripts store beside its owner.
func describe(client string, req driver.Request) string {
	return fmt.Sprintf("%s %s %d %d %d %d %s", client, redisfmt.Letter(req.Mode), req.Limit, req.Units(),
		redisfmt.CeilMillis(req.TTL), redisfmt.CeilMillis(req.MinHold), redisfmt.Identity(req.Identity))
}

// parseHolder parses "owner token desc". The token is the time of the grant, unless the server's
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

// readDesc parses the result of describe. Only requests with a limit have a weight.
func readDesc(w *redisfmt.Words) (req driver.Request, id driver.Identity) {
	w.Next() // the client
	req.Mode = redisfmt.ModeOf(w.Next())
	req.Limit, req.Weight = int(w.Int()), int(w.Int())
	if req.Limit == 0 {
		req.Weight = 0
	}
	req.TTL = w.Millis()
	w.Int() // the minimum hold
	return req, w.Identity()
}
