package redlock

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/words"
)

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
	w := words.Words{Rest: text}
	h.Owner, h.Token = w.Next(), w.Int()
	h.Since = time.UnixMicro(w.Int())
	h.PID = int(w.Int())
	if h.Host = w.Next(); h.Host == "-" {
		h.Host = ""
	}
	h.Note = w.Rest
	return h, !w.Bad
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
