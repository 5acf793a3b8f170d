package idempotent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"

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
	// cannot read each other's responses. Requests for which it returns "" get status 400. nil, the
	// default, uses the Authorization header: a client with a new token counts as another client.
	// Set Client if you authenticate by cookies or certificates, or if tokens change. [SharedKeys]
	// means that all clients share their keys.
	Client func(*http.Request) string

	// Detach lets the handler finish its work after the client has closed the connection: its
	// context no longer ends with that of the request. It still ends, with a cause that is
	// fencelock.ErrLost, if the lock is lost. Without Detach, a client that disconnects after a
	// charge and retries is charged again, unless the handler called [Keep]. A detached handler
	// must limit its own time.
	Detach bool

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
	// It is not called if the handler did not finish, or if it called the function [Keep]. nil, the
	// default, is [IsOutcome]. Keep must be safe for concurrent use and must not change the header.
	Keep func(status int, header http.Header) bool

	// Payload returns what is compared if a key is used again, such as JSON without its spaces,
	// instead of the Content-Type and the body. A result of nil means the default: the parts of a
	// multipart body, whose boundary may differ (and, of multipart/form-data, the order of parts with
	// different names), and the Content-Type and the bytes of any other body. The method, the host
	// and the URL are always compared. It must be safe for concurrent use, and must not change the
	// body.
	Payload func(r *http.Request, body []byte) []byte

	// Unstored are the response fields that are sent to the first client only, since they are about
	// its exchange. nil means the default: Set-Cookie, Date, Age, Server-Timing, RateLimit,
	// RateLimit-Policy, Request-Id, X-Request-Id, X-Correlation-Id, Traceparent, Tracestate and
	// Traceresponse. Fields about the connection, such as Connection and Trailer, are never stored.
	Unstored []string

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

// SharedKeys is an HTTP.Client for services whose clients share their keys: every client that sends
// the same request with the same key gets the stored response.
func SharedKeys(*http.Request) string { return "*" }

// Keep tells Handler that the work of a request is done, whatever becomes of the exchange and
// whatever the status: a request with this key is not handled again. Its response is stored, even if
// the client has closed the connection or the status is not an outcome by HTTP.Keep, such as a final
// 409. If the handler writes less than the Content-Length that it declares, no response is stored,
// and later requests of the key get status 409. If it panics, Keep has no effect.
//
// r is the request that the handler got, or one with a context derived from it. Outside of Handler,
// Keep does nothing. It is safe for concurrent use until the handler returns.
func Keep(r *http.Request) {
	if kept, ok := r.Context().Value(keepKey{}).(*atomic.Bool); ok {
		kept.Store(true)
	}
}

// keepKey is the context key of the *atomic.Bool that Keep sets.
type keepKey struct{}

// IsOutcome reports whether a response says what became of a request, rather than that the server
// refuses it for now. It is false for 500 and above, for 101, 401, 403, 407, 408, 409, 412, 421,
// 423, 425, 428, 429 and 499, and for every response with a Retry-After header.
func IsOutcome(status int, header http.Header) bool {
	switch status {
	case http.StatusSwitchingProtocols, http.StatusUnauthorized, http.StatusForbidden,
		http.StatusProxyAuthRequired, http.StatusRequestTimeout, http.StatusConflict, http.StatusPreconditionFailed,
		http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly,
		http.StatusPreconditionRequired, http.StatusTooManyRequests, clientClosedRequest:
		return false
	}
	return status < 500 && header.Get("Retry-After") == ""
}

// Handler passes one request per Idempotency-Key to next. Later requests with that key get the
// stored status, header and body, with the field "Idempotent-Replayed: true" and without the fields
// of HTTP.Unstored. It follows draft-ietf-httpapi-idempotency-key-header. It answers with a problem
// document and one of these statuses:
//
//   - 400: the key is missing or invalid, or the client is unknown; see HTTP.Client.
//   - 409: the first request is still being handled after Options.Wait, or at once with
//     Options.NoWait; or it was handled and its response could not be stored.
//   - 422: the key was used with another method, host, URL or body.
//   - 500: the lock was lost while the request was handled. Another process may have handled it
//     again; a later request of the key gets the outcome.
//   - 503: the engine is unreachable. The request was not handled.
//
// A response is stored if next finished it and HTTP.Keep accepts it. A refusal by next, such as 429
// or 503, is sent but not stored. A request was not finished, and the next one with its key is
// handled again, if next panics, if it writes less than the Content-Length that it declared,
// or if the context of the request has ended when it returns, because the client closed
// the connection or a deadline passed. HTTP.Detach or a call of the function [Keep] change that.
// After a response that is too short, Handler panics with http.ErrAbortHandler, so that the client
// gets an error. Handler cannot notice other errors that next ignores. If a backend fails in the middle of a
// response without a Content-Length, next must panic with http.ErrAbortHandler.
//
// The key is free when next returns. So next must not return while its work continues: put an
// http.TimeoutHandler in front of Handler, not behind it. Behind it, its response 503 would free the
// key while the inner handler runs on.
//
// If a handler in front has parsed the body as a form, its values are compared, and of its files the
// names and sizes. Fields that a handler in front has set stay in the response. A field of next
// replaces the one of the same name, or is appended if the field is a list, such as Set-Cookie or
// Vary. Compress in front: next does not get the Accept-Encoding field, since later clients may
// accept other encodings than the first.
//
// next gets the context of the run (fencelock.TokenFrom). Its response is held in memory until it
// is complete, so next cannot flush or hijack, and informational responses and trailers are not
// sent. A response longer than Config.MaxResult is sent but not stored: later requests of the key
// get status 409. If storing fails, the response is sent anyway, and the next request of the key may
// be handled again.
//
// Handler ignores Config.Remember, Config.Codec and Options.Payload of the store. cfg may be nil.
func (s *Store) Handler(next http.Handler, cfg *HTTP) http.Handler {
	h := &handler{store: *s, next: next}
	if cfg != nil {
		h.cfg = *cfg
	}
	h.store.cfg.Remember = nil
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
	if h.cfg.Unstored == nil {
		h.cfg.Unstored = unstored
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
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 && h.cfg.Optional {
		h.next.ServeHTTP(w, r)
		return
	}
	key, wrong := headerKey(values)
	if wrong != "" {
		problem(w, http.StatusBadRequest, wrong)
		return
	}
	client := h.cfg.Client(r)
	if client == "" {
		problem(w, http.StatusBadRequest, "the server cannot tell whose Idempotency-Key this is: the request needs an Authorization header, or the server another way to identify clients (HTTP.Client)")
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
	h.once(w, r, digest(client, key), body)
}

// once handles a request with a key.
func (h *handler) once(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	run, err := h.store.With(Options{Payload: h.payload(r, body)}).Begin(r.Context(), key)
	if err != nil {
		h.recall(w, r, err)
		return
	}
	defer run.Abandon() // for a panic; otherwise it does nothing
	ctx := run.Context()
	if h.cfg.Detach {
		ctx = run.Lock().ContextWith(context.WithoutCancel(r.Context()))
	}
	var kept atomic.Bool
	rec := h.serve(r.WithContext(context.WithValue(ctx, keepKey{}, &kept)), body)
	served := &reply{Status: rec.status, Header: rec.sent, Body: rec.body.Bytes()}
	cut := rec.cut()
	err = h.settle(run, served, cut, unfinished(ctx), kept.Load())
	if err != nil && !errors.Is(err, errAgain) {
		h.cfg.Failed(r, err)
	}
	if errors.Is(err, fencelock.ErrLost) {
		problem(w, http.StatusInternalServerError, "the outcome of this request is unknown, and another process may have handled it again; retry it with the same Idempotency-Key")
		return
	}
	served.send(w, false) // what was done, whether it was stored or not
	if cut != nil {
		panic(http.ErrAbortHandler) // a handler in front may have removed the Content-Length
	}
}

// unfinished returns an error if the context of a handler ended before it returned.
func unfinished(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("idempotent: the context of the request ended before the handler returned: %w", context.Cause(ctx))
}

// settle ends the run of a request and stores the response if it is the outcome of the key. cut and
// ended are why the handler did not finish, or nil. kept means that it called Keep.
func (h *handler) settle(run *Run, served *reply, cut, ended error, kept bool) error {
	switch incomplete := cmp.Or(cut, ended); {
	case kept && cut != nil:
		return errors.Join(run.end(record{State: noResult}), cut)
	case kept:
		return run.Complete(served.encode(h.cfg.Unstored))
	case incomplete != nil:
		return errors.Join(run.Fail(incomplete), incomplete)
	case !h.cfg.Keep(served.Status, served.Header):
		return cmp.Or(run.Fail(errAgain), errAgain)
	}
	return run.Complete(served.encode(h.cfg.Unstored))
}

// recall answers a request that is not handled: with the stored response, or with a refusal.
func (h *handler) recall(w http.ResponseWriter, r *http.Request, err error) {
	if over, ok := errors.AsType[*DoneError](err); ok && over.Err == nil {
		var stored *reply
		if stored, err = decodeReply(over.Result); err == nil {
			stored.send(w, true)
			return
		}
	}
	switch {
	case errors.Is(err, ErrMismatch):
		problem(w, http.StatusUnprocessableEntity, "this Idempotency-Key was used for another request")
	case errors.Is(err, ErrInProgress):
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusConflict, "a request with this Idempotency-Key is still being handled")
	case errors.Is(err, ErrNoResult):
		problem(w, http.StatusConflict, "a request with this Idempotency-Key was handled, but its response was too long or incomplete, so it was not stored")
	default:
		h.cfg.Failed(r, err)
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "this request was not handled: the server cannot check whether it was handled before")
	}
}

// errAgain ends a run whose response is not stored.
var errAgain = errors.New("idempotent: the response is not stored")

// serve calls next and returns its response. It removes the files of a form that next has parsed,
// because the server removes only those of its own request.
func (h *handler) serve(r *http.Request, body []byte) *recorder {
	before := r.MultipartForm
	defer func() {
		if form := r.MultipartForm; form != nil && form != before {
			_ = form.RemoveAll() // left-over files are no reason to handle the request again
		}
	}()
	r.Header = r.Header.Clone()
	r.Header.Del("Accept-Encoding") // the response is for later clients, too
	r.Body = io.NopCloser(bytes.NewReader(body))
	w := &recorder{method: r.Method, header: http.Header{}}
	h.next.ServeHTTP(w, r)
	w.WriteHeader(http.StatusOK)
	return w
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
