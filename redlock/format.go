package redlock

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/hosttext"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// describe returns the description of a request that nodes store. The note comes last, since it may
// contain spaces.
func describe(req driver.Request) string {
	return fmt.Sprintf("%d %s %s", req.PID, redisfmt.HostWord(hosttext.Format(req.Identity)), req.Note)
}

// parseHolder parses "owner token since pid host note".
func parseHolder(text string) (h driver.Holder, ok bool) {
	w := redisfmt.Words{Rest: text}
	h.Owner, h.Token = w.Next(), w.Int()
	h.Since = time.UnixMicro(w.Int())
	h.PID = int(w.Int())
	hosttext.Parse(&h.Identity, redisfmt.Host(w.Next()))
	h.Note = w.Rest
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
