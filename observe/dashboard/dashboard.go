package dashboard

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
)

// Config holds the settings of a Handler. The zero Config shows all locks and breaks none.
type Config struct {
	// Prefix selects the names that are shown. Empty, the default, means all.
	Prefix string

	// Elections are names of elections, with the prefix. The page recognises elections by their
	// candidates and remembers them. Of these it says from the start that nobody leads, and it
	// recognises those of other programs. Candidates do not count as waiting requests.
	Elections []string

	// Hosts are the host names under which the page is served, without ports. Requests for other
	// names are refused. IP addresses and localhost are always accepted.
	Hosts []string

	// MayBreak decides whether a request may take a lock away. It returns an error that says why
	// not. nil, the default, refuses every request, and the page has no button.
	MayBreak func(*http.Request) error

	// Interval is the least time between two lists. 0 means the default, 500 ms.
	Interval time.Duration

	// Logger receives who broke which lock. nil, the default, means no logging.
	Logger *slog.Logger
}

// Handler serves the page, its events, its metrics and its one action. Its paths are relative, so
// it can be mounted anywhere below a path that ends with a slash, with or without
// [http.StripPrefix].
type Handler struct {
	cfg    Config
	hub    *hub
	origin *http.CrossOriginProtection
	done   chan struct{}
	close  func()
}

// New returns the page of locks. It does no I/O. cfg may be nil.
func New(locks *fencelock.Locker, cfg *Config) *Handler {
	h := &Handler{origin: http.NewCrossOriginProtection(), done: make(chan struct{})}
	if cfg != nil {
		h.cfg = *cfg
	}
	if h.cfg.Interval <= 0 {
		h.cfg.Interval = defaultInterval
	}
	if h.cfg.Logger == nil {
		h.cfg.Logger = slog.New(slog.DiscardHandler)
	}
	h.close = sync.OnceFunc(func() { close(h.done) })
	h.hub = newHub(locks, h.cfg)
	return h
}

// Close ends the open event streams, which [http.Server.Shutdown] would wait for. Pass it to
// [http.Server.RegisterOnShutdown].
func (h *Handler) Close() { h.close() }

// ServeHTTP answers a request for the page or for one of the paths events, metrics and break beside
// it.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Cache-Control", "no-store")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(slowest)) // some servers have no deadlines
	if !h.knows(r.Host) {
		http.Error(w, "this page is not served under the host name of this request", http.StatusMisdirectedRequest)
		return
	}
	method := strings.Replace(r.Method, http.MethodHead, http.MethodGet, 1)
	switch _, last := path.Split(r.URL.Path); method + " " + last {
	case "GET ":
		h.page(w, r)
	case "GET events":
		h.events(w, r)
	case "GET metrics":
		h.metrics(w, r)
	case "POST break":
		h.take(w, r)
	default:
		http.Error(w, "nothing here answers this method and path", http.StatusNotFound)
	}
}

// knows reports whether the page is served under the host of a request. A site that points its own
// name to this server, to read the page as its own origin, needs a name; so an address is harmless.
func (h *Handler) knows(host string) bool {
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if _, err := netip.ParseAddr(name); err == nil || name == "localhost" {
		return true
	}
	return slices.ContainsFunc(h.cfg.Hosts, func(known string) bool { return strings.EqualFold(known, name) })
}
