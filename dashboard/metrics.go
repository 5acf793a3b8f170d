package dashboard

import (
	"fmt"
	"net/http"
	"strings"
)

// metrics answers in the text format of Prometheus. The values are those of a list, so they cover
// all holders and waiters of the engine, whatever program or language they use.
func (h *Handler) metrics(w http.ResponseWriter, _ *http.Request) {
	h.hub.look()
	u := h.hub.view(query{}, &sent{})
	up := 1
	if u.Error != "" {
		up = 0
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	engine := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(h.hub.locks.EngineName())
	for _, m := range []struct {
		name, help string
		value      any
	}{
		{"up", "1 if the last list of the engine had no error.", up},
		{"locks_held", "Acquisitions that hold a lock.", u.Held},
		{"requests_waiting", "Requests that wait for a lock.", u.Waiting},
		{"names", "Names that are held, waited for or closed by a minimum hold.", u.Names},
		{"longest_wait_seconds", "How long the oldest request has waited.", seconds(u.LongestWait)},
		{"oldest_hold_seconds", "How long the oldest lock has been held.", seconds(u.Oldest)},
		{"list_seconds", "How long the last list took.", u.Took / 1000},
	} {
		fmt.Fprintf(w, "# HELP fencelock_ui_%[1]s %[2]s\n# TYPE fencelock_ui_%[1]s gauge\nfencelock_ui_%[1]s{engine=\"%[3]s\"} %[4]v\n", m.name, m.help, engine, m.value)
	}
}

// seconds converts milliseconds.
func seconds(ms int64) float64 { return float64(ms) / 1000 }
