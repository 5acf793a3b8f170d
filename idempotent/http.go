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

// HTTP tunes [Store.Handler]. The zero value is useful.
type HTTP struct {
	// Methods are those of the requests that are done once; others pass. nil means
	// the default, POST and PATCH.
	Methods []string

	// Optional lets requests without a key pass. The default answers them with 400.
	Optional bool

	// Client says whose key it is, so that two clients cannot read one another's
	// answers: an account, say, that was authenticated before. nil, the default, goes by
	// the Authorization header: without one all clients are the same, and a client
	// whose token was renewed is another one. Set it if you authenticate by cookies or
	// certificates, or if tokens change.
	Client func(*http.Request) string

	// MaxBody is how many bytes the body of a request may have; a longer one is
	// answered with 413. 0 means the default, 1 MiB.
	MaxBody int64

	// Host names the host that a request is for. The same key with another host is
	// answered with 422. nil, the default, goes by the Host header: set it behind a proxy that replaces that
	// header, or if clients try again under another name of the same service. To let each
	// host have keys of its own, make the host a part of what Client returns.
	Host func(*http.Request) string

	// Keep reports whether an answer is the outcome of its key: the answer is kept, and
	// later requests of the key get it. If not, the next request of the key is served. nil, the default,
	// is [IsOutcome]. It must be safe for concurrent use and must not change the header.
	Keep func(status int, header http.Header) bool

	// Failed hears why a request was answered with 503, was lost, or why its answer
	// was not kept: the client is not told. It must be safe for concurrent use, and
	// the answer waits for it. nil, the default, is nobody.
	Failed func(*http.Request, error)
}

const (
	defaultMaxBody = 1 << 20
	maxHeaderKey   = 255
)

// clientClosedRequest is the status that nginx logs when the client has hung up.
const clientClosedRequest = 499

// IsOutcome reports whether an answer says what became of a request, and not only that
// the server refuses it for now: it is false for 500 and above, for 401, 403, 407, 408, 409, 412, 421,
// 423, 425, 428, 429 and 499, and for every answer with a Retry-After header.
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

// Handler serves each request that has an Idempotency-Key once, by next, and answers
// every other one of that key with the status, header and body that were kept. It follows
// draft-ietf-httpapi-idempotency-key-header: 400 without a key, 409 if the first request
// is served for longer than Options.Wait and Options.NoWait allow, 422 if the key came with another method, host, URL or body. The answers are
// problem documents. It is 503 if the engine cannot be asked, and nothing was done then.
// A refusal by next, such as 429 or 503, is sent and not kept: see HTTP.Keep. Nor is there an outcome
// if next returns without writing anything after the client has hung up, which ends its context: the next
// request of the key is served anew.
// Of a body that a handler before has made a form of, its values are compared, and no files.
//
// next gets the context of the run (fencelock.TokenFrom). Its answer is held in memory until it
// is complete, so it cannot flush or hijack, and has no trailers. One that is longer than
// Config.MaxResult is not kept: later requests of the key get 409. One that cannot be stored is
// sent all the same, and the next request may be served anew. The Remember, the Codec and the payload of the store
// are not used; cfg may be nil.
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

// once serves a request with a key.
func (h *handler) once(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	contents := []string{r.Method, strings.ToLower(h.cfg.Host(r)), target(r), r.Header.Get("Content-Type"), string(body)}
	if len(r.PostForm) > 0 { // somebody has read the body before, to make a form of it
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
		problem(w, http.StatusConflict, "this request took too long, and was served once more; ask again for that answer")
	case served != nil: // what was done was done, whether it is kept or not
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
		problem(w, http.StatusConflict, "a request with this Idempotency-Key is being served")
	case errors.Is(err, ErrNoResult):
		problem(w, http.StatusConflict, "a request with this Idempotency-Key was served, and its answer was too long to be kept")
	default:
		h.cfg.Failed(r, err)
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "it cannot be found out whether this request was served; nothing was done")
	}
}

// target is the path and the query that the client has sent, whatever prefix was cut off
// since.
func target(r *http.Request) string {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u.RequestURI()
	}
	return r.URL.RequestURI()
}

// errAgain ends a run whose answer is not kept.
var errAgain = errors.New("idempotent: the answer is not kept")

// serve lets next make the answer, and reports whether next wrote any. What next parses of r the server does not see, which
// removes the files of its own request alone.
func (h *handler) serve(r *http.Request, body []byte) (_ *reply, spoke bool) {
	before := r.MultipartForm
	defer func() {
		if form := r.MultipartForm; form != nil && form != before {
			_ = form.RemoveAll() // what stays is an operator's to remove, and no reason to serve it again
		}
	}()
	r.Body = io.NopCloser(bytes.NewReader(body))
	w := &recorder{header: http.Header{}}
	h.next.ServeHTTP(w, r)
	spoke = w.status != 0
	w.WriteHeader(http.StatusOK)
	return &reply{Status: w.status, Header: w.sent, Body: w.body.Bytes()}, spoke
}

// reply is an answer, as it is kept.
type reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// bytewise is the Codec of answers: the texts in a header need not be UTF-8, as those of
// JSON must.
type bytewise struct{}

// Encode returns the gob of value.
func (bytewise) Encode(value any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(value)
	return b.Bytes(), err
}

// Decode reads a gob.
func (bytewise) Decode(data []byte, value any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(value)
}

func (p *reply) send(w http.ResponseWriter) {
	for name, values := range p.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(p.Body) // the client may have gone
}

// recorder keeps what a handler answers.
type recorder struct {
	header http.Header
	sent   http.Header // as it was when the status was written
	status int
	body   bytes.Buffer
}

// Header returns the header that a handler writes to.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader keeps the first status that is not informational. One that is none panics, as
// net/http does: nothing of such an answer is kept.
func (w *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("idempotent: %d is no status of HTTP", status))
	}
	if w.status == 0 && status >= 200 {
		w.status, w.sent = status, w.header.Clone()
	}
}

// Write keeps a part of the body.
func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// problem answers with a problem document (RFC 9457).
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct { // the client may have gone
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
}

// keyItem is a string in quotes with parameters, which mean nothing here (RFC 9651).
var keyItem = regexp.MustCompile(`^"((?:[^"\\]|\\.)*)"(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:` +
	`-?\d{1,15}(?:\.\d{1,3})?|@-?\d{1,15}|\?[01]|%?"(?:[^"\\]|\\.)*"|:[A-Za-z0-9+/=]*:|[A-Za-z*][!#$%&'*+.^_` + "`" + `|~0-9A-Za-z:/-]*))?)*$`)

// headerKey reads the key, a string in quotes (RFC 9651) or, as many clients send it,
// without.
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

// digest is the SHA-256 of texts, each with its length.
func digest(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(t))))
		h.Write([]byte(t))
	}
	return hex.EncodeToString(h.Sum(nil))
}
