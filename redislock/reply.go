package redislock

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/fencelock/fencelock/driver"
)

// words reads the reply of a script: words with a space between, and possibly
// free text at the end. The first malformed word spoils it.
type words struct {
	rest string
	bad  bool
}

func (w *words) next() string {
	word, rest, _ := strings.Cut(w.rest, " ")
	w.bad = w.bad || word == ""
	w.rest = rest
	return word
}

func (w *words) int() int64 {
	n, err := strconv.ParseInt(w.next(), 10, 64)
	w.bad = w.bad || err != nil
	return n
}

// malformed is the error for a reply that no script of ours makes.
func malformed(text string) error {
	return fmt.Errorf("%w: unexpected answer %.100q", driver.ErrUnavailable, text)
}

// outlook is what a waiter is told about a name.
type outlook struct {
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

func (w *words) outlook() outlook {
	next := w.int()
	return outlook{next: time.Duration(next) * time.Millisecond, why: w.next(), text: w.rest}
}

// held says who is in the way.
func (o outlook) held(name string) *driver.HeldError {
	held := &driver.HeldError{Name: name}
	if o.next >= 0 {
		held.Until = time.Now().Add(o.next)
	}
	switch o.why {
	case whyForeign:
		held.Owner = printable(o.text)
	case whyQuarantine:
		held.Owner, held.Note = "nobody", "quarantine: the server may have forgotten its locks"
	case whyMinimum:
		held.Owner, held.Note = "nobody", "the minimum hold of its last holder runs"
	default:
		if h, ok := parseHolder(strings.TrimPrefix(o.text, "fencelock ")); ok {
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
func (e *Engine) describe(req driver.Request) string {
	var b strings.Builder
	b.Grow(96 + len(req.Host) + len(req.Note))
	b.WriteString(e.id)
	if req.Mode == driver.Shared {
		b.WriteString(" s ")
	} else {
		b.WriteString(" x ")
	}
	for _, n := range [...]int64{int64(req.Limit), ceilMillis(req.TTL), ceilMillis(req.AtLeast), int64(req.PID)} {
		var buf [20]byte
		b.Write(strconv.AppendInt(buf[:0], n, 10))
		b.WriteByte(' ')
	}
	b.WriteString(word(req.Host))
	b.WriteByte(' ')
	b.WriteString(req.Note)
	return b.String()
}

// word makes a host name one word.
func word(host string) string {
	if host == "" {
		return "-"
	}
	return strings.ReplaceAll(host, " ", "_")
}

func ceilMillis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// parseHolder reads "owner token since desc".
func parseHolder(text string) (h driver.Holder, ok bool) {
	w := words{rest: text}
	h.Owner, h.Token = w.next(), w.int()
	h.Since = time.UnixMicro(w.int())
	_, h.Identity = w.desc()
	return h, !w.bad
}

// desc reads what describe wrote.
func (w *words) desc() (req driver.Request, id driver.Identity) {
	w.next() // the client
	if w.next() == "s" {
		req.Mode = driver.Shared
	}
	req.Limit = int(w.int())
	req.TTL = time.Duration(w.int()) * time.Millisecond
	w.int() // the minimum hold
	id.PID = int(w.int())
	if id.Host = w.next(); id.Host == "-" {
		id.Host = ""
	}
	id.Note = w.rest
	return req, id
}
