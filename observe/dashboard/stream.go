package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	maxViewers = 200
	slowest    = 30 * time.Second // how long a window may take to read the page or an event
)

// events sends an event after each listing, until the window is closed or hidden.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" { // another site could not read the answer, but would keep the reader busy
		http.Error(w, "cross-origin request", http.StatusForbidden)
		return
	}
	head := w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("X-Accel-Buffering", "no") // or nginx would collect events
	if r.Method == http.MethodHead {
		return
	}
	q := queryOf(r)
	v := &viewer{changed: make(chan struct{}, 1), wantJobs: q.jobs}
	if !h.hub.join(v) {
		http.Error(w, "too many windows show this page", http.StatusServiceUnavailable)
		return
	}
	defer h.hub.leave(v)
	had, out := &sent{}, http.NewResponseController(w)
	for {
		select {
		case <-r.Context().Done():
			return
		case <-h.done:
			return
		case <-v.changed:
		}
		text, err := json.Marshal(h.hub.view(q, had))
		if err != nil { // no type of an update can fail
			panic(err)
		}
		_ = out.SetWriteDeadline(time.Now().Add(slowest)) // as in ServeHTTP
		if _, err = fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
	}
}

// queryOf returns what a request wants to see.
func queryOf(r *http.Request) query {
	given := r.URL.Query()
	return query{filter: strings.ToLower(given.Get("filter")), jobs: given.Get("jobs") != ""}
}
