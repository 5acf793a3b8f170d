package idempotent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/fencelock/fencelock"
)

// HTTP holds the settings of [Store.Handler]. The zero value is ready to use.
type HTTP struct {
	// Methods are the methods of requests that are handled once; other requests pass. nil means the
	// default, POST and PATCH.
	Methods []string

	// Optional lets requests without a key pass. By default they get status 400.
	Optional bool

	// Client returns whose key it is, such as the ID of an authenticated account, so that clients
	// cannot read each other's responses. nil, the default, uses the Authorization header: clients
	// without one share their keys, and a client with a new token counts as another client. Set
	// Client if you authenticate by cookies or certificates, or if tokens change.
	Client func(*http.Request) string

	// MaxBody is the maximum size of a request body in bytes. Longer ones get status 413. 0 means
	// the default, 1 MiB.
	MaxBody int64

	// Host returns the host that a request is for. A key that is used again with another host gets
	// status 422. nil, the default, uses the Host header. Set Host behind a proxy that replaces
	// that header, or if clients retry under another name of the same service. To give each host
	// its own keys, include the host in the result of Client.
	Host func(*http.Request) string

	// Keep reports whether a response is the outcome of its key. If it is, the response is stored
	// and later requests of the key get it. If not, the next request of the key is handled again.
	// nil, the default, is [IsOutcome]. Keep must be safe for concurrent use and must not change
	// the header.
	Keep func(status int, header http.Header) bool

	// Failed is called with errors that are not sent to clients: why a request got status 503, why
	// a run was lost, or why a response was not stored. The response waits for it. It must be safe
	// for concurrent use. nil, the default, means no call.
	Failed func(*http.Request, error)
}

const (
	defaultMaxBody = 1 << 20
	maxHeaderKey   = 255
)

// clientClosedRequest is the status that nginx logs when a client has closed the connection.
const clientClosedRequest = 499

// IsOutcome reports whether a response says what became of a request, rather than that the server
// refuses it for now. It is false for 500 and above, for 401, 403, 407, 408, 409, 412, 421, 423,
// 425, 428, 429 and 499, and for every response with a Retry-After header.
func IsOutcome(status int, header http.Header) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusConflict, http.StatusPreconditionFailed,
		http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly,
		http.StatusPreconditionRequired, http.StatusTooManyRequests, clientClosedRequest:
		return false
	}
	return status < 500 && header.Get("Retry-After") == ""
}

// Handler passes one request per Idempotency-Key to next. Later requests with that key get the
// stored status, header and body. It follows draft-ietf-httpapi-idempotency-key-header. It answers
// with a problem document and one of these statuses:
//
//   - 400: the key is missing or invalid.
//   - 409: the first request is still being handled after Options.Wait, or at once with
//     Options.NoWait; or its response was not stored.
//   - 422: the key was used with another method, host, URL or body.
//   - 500: the lock was lost while the request was handled. Another process may have handled it
//     again; a later request of the key gets the outcome.
//   - 503: the engine is unreachable. The request was not handled.
//
// A refusal by next, such as 429 or 503, is sent but not stored; see HTTP.Keep. If the client
// closes the connection, which ends the context of next, and next returns without writing anything,
// nothing is stored and the next request of the key is handled again. If a handler in front has
// parsed the body as a form, its values are compared, but not its files.
//
// next gets the context of the run (fencelock.TokenFrom). Its response is held in memory until it
// is complete, so next cannot flush or hijack, and trailers are not supported. A response longer
// than Config.MaxResult is sent but not stored: later requests of the key get status 409. If
// storing fails, the response is sent anyway, and the next request of the key may be handled again.
//
// Handler ignores Config.Remember, Config.Codec and Options.Payload of the store. cfg may be nil.
func (s *Store) Handler(next http.Handler, cfg *HTTP) http.Handler {
	h := &handler{store: *s, next: next}
	if cfg != nil {
		h.cfg = *cfg
	}
	h.store.cfg.Codec, h.store.cfg.Remember = bytewise{}, nil
	h.cfg.MaxBody = cmp.Or(h.cfg.MaxBody, defaultMaxBody)
	if h.cfg.Methods == nil {
		h.cfg.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	if h.cfg.Client == nil {
		h.cfg.Client = func(r *http.Request) string { return r.Header.Get("Authorization") }
	}
	if h.cfg.Failed == nil {
		h.cfg.Failed = func(*http.Request, error) {}
	}
	if h.cfg.Keep == nil {
		h.cfg.Keep = IsOutcome
	}
	if h.cfg.Host == nil {
		h.cfg.Host = func(r *http.Request) string { return r.Host }
	}
	return h
}

type handler struct {
	store Store
	next  http.Handler
	cfg   HTTP
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !slices.Contains(h.cfg.Methods, r.Method) {
		h.next.ServeHTTP(w, r)
		return
	}
	key, ok := headerKey(r.Header.Values("Idempotency-Key"))
	switch {
	case len(r.Header.Values("Idempotency-Key")) == 0 && h.cfg.Optional:
		h.next.ServeHTTP(w, r)
		return
	case !ok:
		problem(w, http.StatusBadRequest, "this request needs one Idempotency-Key of 1 to 255 characters")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.cfg.MaxBody))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		problem(w, http.StatusRequestEntityTooLarge, "the body is too long")
		return
	}
	if err != nil {
		problem(w, http.StatusBadRequest, "the body could not be read")
		return
	}
	h.once(w, r, digest(h.cfg.Client(r), key), body)
}

// once handles a request with a key.
func (h *handler) once(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	contents := []string{r.Method, strings.ToLower(h.cfg.Host(r)), target(r), r.Header.Get("Content-Type"), string(body)}
	if len(r.PostForm) > 0 { // a handler in front has parsed the body as a form
		contents = append(contents, r.PostForm.Encode())
	}
	store := h.store.With(Options{Payload: []byte(digest(contents...))})
	var served *reply
	kept, err := Do(r.Context(), store, key, func(ctx context.Context) (*reply, error) {
		var spoke bool
		served, spoke = h.serve(r.WithContext(ctx), body)
		if !spoke && ctx.Err() != nil || !h.cfg.Keep(served.Status, served.Header) {
			return served, errAgain
		}
		return served, nil
	})
	switch {
	case errors.Is(err, fencelock.ErrLost):
		h.cfg.Failed(r, err)
		problem(w, http.StatusInternalServerError, "the outcome of this request is unknown, and another process may have handled it again; retry it with the same Idempotency-Key")
	case served != nil: // send what was done, whether it was stored or not
		if err != nil && !errors.Is(err, errAgain) {
			h.cfg.Failed(r, err)
		}
		served.send(w)
	case err == nil:
		kept.send(w)
	case errors.Is(err, ErrMismatch):
		problem(w, http.StatusUnprocessableEntity, "this Idempotency-Key was used for another request")
	case errors.Is(err, ErrInProgress):
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusConflict, "a request with this Idempotency-Key is still being handled")
	case errors.Is(err, ErrNoResult):
		problem(w, http.StatusConflict, "a request with this Idempotency-Key was handled, but its response was too long to be stored")
	default:
		h.cfg.Failed(r, err)
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "this request was not handled: the server cannot check whether it was handled before")
	}
}

// target returns the path and query that the client sent, even if a handler in front has stripped a
// prefix.
func target(r *http.Request) string {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u.RequestURI()
	}
	return r.URL.RequestURI()
}

// errAgain ends a run whose response is not stored.
var errAgain = errors.New("idempotent: the response is not stored")

// serve calls next and reports whether it wrote a response. It removes the files of a form that
// next has parsed, because the server removes only those of its own request.
func (h *handler) serve(r *http.Request, body []byte) (_ *reply, spoke bool) {
	before := r.MultipartForm
	defer func() {
		if form := r.MultipartForm; form != nil && form != before {
			_ = form.RemoveAll() // left-over files are no reason to handle the request again
		}
	}()
	r.Body = io.NopCloser(bytes.NewReader(body))
	w := &recorder{header: http.Header{}}
	h.next.ServeHTTP(w, r)
	spoke = w.status != 0
	w.WriteHeader(http.StatusOK)
	return &reply{Status: w.status, Header: w.sent, Body: w.body.Bytes()}, spoke
}

// reply is a response in its stored form.
type reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// bytewise is the Codec of responses. Header values need not be UTF-8, which rules out JSON.
type bytewise struct{}

// Encode returns the gob of value.
func (bytewise) Encode(value any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(value)
	return b.Bytes(), err
}

// Decode decodes a gob.
func (bytewise) Decode(data []byte, value any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(value)
}

func (p *reply) send(w http.ResponseWriter) {
	for name, values := range p.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(p.Body) // the client may have closed the connection
}

// recorder stores the response of a handler.
type recorder struct {
	header http.Header
	sent   http.Header // as it was when the status was written
	status int
	body   bytes.Buffer
}

// Header returns the header that a handler writes to.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader stores the first status that is not informational. An invalid status panics, as in
// net/http, and nothing is stored.
func (w *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("idempotent: %d is not an HTTP status", status))
	}
	if w.status == 0 && status >= 200 {
		w.status, w.sent = status, w.header.Clone()
	}
}

// Write stores a part of the body.
func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// problem sends a problem document (RFC 9457).
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct { // the client may have closed the connection
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
}

// keyItem is a quoted string with parameters, which are ignored (RFC 9651).
var keyItem = regexp.MustCompile(`^"((?:[^"\\]|\\.)*)"(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:` +
	`-?\d{1,15}(?:\.\d{1,3})?|@-?\d{1,15}|\?[01]|%?"(?:[^"\\]|\\.)*"|:[A-Za-z0-9+/=]*:|[A-Za-z*][!#$%&'*+.^_` + "`" + `|~0-9A-Za-z:/-]*))?)*$`)

// headerKey parses the key: a quoted string (RFC 9651) or, as many clients send it, an unquoted
// one.
func headerKey(values []string) (key string, ok bool) {
	if len(values) != 1 {
		return "", false
	}
	inner := strings.Trim(values[0], " \t")
	quoted := strings.HasPrefix(inner, `"`)
	if quoted {
		item := keyItem.FindStringSubmatch(inner)
		if item == nil {
			return "", false
		}
		inner = item[1]
	}
	var b strings.Builder
	for i := 0; i < len(inner); i++ {
		c := inner[i]
		switch {
		case c < 0x20 || c > 0x7e || c == '"':
			return "", false
		case !quoted && strings.IndexByte(` ,;\`, c) >= 0:
			return "", false
		case c == '\\':
			if i++; i == len(inner) || inner[i] != '"' && inner[i] != '\\' {
				return "", false
			}
			c = inner[i]
		}
		b.WriteByte(c)
	}
	return b.String(), 0 < b.Len() && b.Len() <= maxHeaderKey
}

// digest returns the SHA-256 of texts, each preceded by its length.
func digest(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(t))))
		h.Write([]byte(t))
	}
	return hex.EncodeToString(h.Sum(nil))
}
