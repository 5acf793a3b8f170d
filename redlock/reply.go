package redlock

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// words reads what a script answered: words with a space between, and possibly
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

func (w *words) millis() time.Duration { return time.Duration(w.int()) * time.Millisecond }

// describe is what nodes keep about a holder, for people.
func describe(req driver.Request) string {
	host := strings.ReplaceAll(req.Host, " ", "_")
	if host == "" {
		host = "-"
	}
	return fmt.Sprintf("%d %s %s", req.PID, host, req.Note)
}

// parseHolder reads "owner token since pid host note".
func parseHolder(text string) (h driver.Holder, ok bool) {
	w := words{rest: text}
	h.Owner, h.Token = w.next(), w.int()
	h.Since = time.UnixMicro(w.int())
	h.PID = int(w.int())
	if h.Host = w.next(); h.Host == "-" {
		h.Host = ""
	}
	h.Note = w.rest
	return h, !w.bad
}

func letter(m driver.Mode) string {
	if m == driver.Shared {
		return "s"
	}
	return "x"
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
