package redlock

import (
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// parseHolder parses "owner token since pid host note".
func parseHolder(text string) (h driver.Holder, ok bool) {
	w := redisfmt.Words{Rest: text}
	h.Owner, h.Token = w.Next(), w.Int()
	h.Since = time.UnixMicro(w.Int())
	h.Identity = w.Identity()
	return h, !w.Bad
}

// affirmed parses a reply. ok reports whether it is "ok"; server identifies the server.
func affirmed(r redisconn.Reply) (ok bool, server uint64) {
	word, name, _ := strings.Cut(r.Text, " ")
	return r.Err == nil && word == "ok", serverOf(name)
}

// serverOf parses a server's id: the first half of its replication id or, without a quarantine, the
// one that a client has given it. 0 means unknown.
func serverOf(text string) uint64 {
	server, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return 0
	}
	return server
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
