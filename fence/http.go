package fence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
)

// The headers of a fenced request: the percent-encoded name of the lock, and two decimal numbers.
const (
	headerName  = "Fencelock-Name"
	headerToken = "Fencelock-Token"
	headerFloor = "Fencelock-Floor"
)

// staleType is the type of the problem document of a refusal.
const staleType = "tag:github.com,2026:fencelock/stale-token"

// Transport is an http.RoundTripper that sends the fence of the request's context in the headers
// Fencelock-Name, Fencelock-Token and Fencelock-Floor. A request without a fence fails with
// [ErrNoToken] and is not sent. A refusal by a [Handler] is a response with status 412, not an
// error; [Refused] converts it to one. Transport calls the tracer of the lock after a refusal. It
// is safe for concurrent use if Base is.
type Transport struct {
	Base http.RoundTripper // nil means http.DefaultTransport
}

// RoundTrip sends a copy of the request with the headers.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	f, err := From(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set(headerName, url.PathEscape(f.Name))
	r.Header.Set(headerToken, strconv.FormatInt(f.Token, 10))
	r.Header.Set(headerFloor, strconv.FormatInt(f.Floor, 10))
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	response, err := base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	returned := false
	defer func() {
		if !returned { // the tracer panicked
			_ = response.Body.Close()
		}
	}()
	if refused, ok := errors.AsType[*StaleError](Refused(response)); ok {
		_ = f.Refuse(r.Context(), refused.Resource, refused.Floor) // for the tracer
	}
	returned = true
	return response, nil
}

// problem is a problem document of RFC 9457. Numbers are strings, because many JSON parsers lose
// digits of large ones.
type problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Resource string `json:"resource,omitempty"`
	Token    string `json:"token,omitempty"`
	Floor    string `json:"floor,omitempty"`
}

// Refused returns a *[StaleError] if r is a refusal by a [Handler], and nil otherwise. The body of
// r can still be read.
func Refused(r *http.Response) error {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // many servers add a charset
	if r.StatusCode != http.StatusPreconditionFailed || kind != "application/problem+json" {
		return nil
	}
	const limit = 64 << 10
	head, err := io.ReadAll(io.LimitReader(r.Body, limit))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), r.Body), r.Body}
	var p problem
	if err != nil || json.Unmarshal(head, &p) != nil || p.Type != staleType {
		return nil
	}
	token, err := strconv.ParseInt(p.Token, 10, 64)
	if err != nil {
		return nil
	}
	floor, err := strconv.ParseInt(p.Floor, 10, 64)
	if err != nil {
		return nil
	}
	return &StaleError{Resource: p.Resource, Token: token, Floor: floor}
}

// Handler passes requests with a valid token to next, with their fence in the context, where guards
// in next find it. Other requests get a problem document with the status 412 (stale token), 428 (no
// headers), 400 (invalid headers, or a resource that the store does not accept, [ErrResource]) or
// 503 (the store did not answer).
//
// resource returns the name of the resource that a request writes. nil means the path of its URL.
//
// The floor is checked before next runs, not together with its writes. If the process is paused in
// next, it may write late. If that matters, use a guard in next, such as that of package
// fencepostgres.
func Handler(store Store, resource func(*http.Request) string, next http.Handler) http.Handler {
	if resource == nil {
		resource = func(r *http.Request) string { return r.URL.Path }
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, refusal := fenceOf(r)
		if refusal != nil {
			refusal.answer(w)
			return
		}
		name := resource(r)
		err := store.Check(r.Context(), name, f)
		if refused, ok := errors.AsType[*StaleError](err); ok {
			(&problem{
				Type: staleType, Title: "stale fencing token", Status: http.StatusPreconditionFailed, Resource: name,
				Token: strconv.FormatInt(f.Token, 10), Floor: strconv.FormatInt(refused.Floor, 10),
			}).answer(w)
			return
		}
		if errors.Is(err, ErrResource) {
			plain(http.StatusBadRequest, "the name of the resource is too long, or not in UTF-8").answer(w)
			return
		}
		if err != nil {
			plain(http.StatusServiceUnavailable, "the fencing token could not be checked").answer(w)
			return
		}
		next.ServeHTTP(w, r.WithContext(NewContext(r.Context(), f)))
	})
}

// fenceOf parses the headers of a request. If they are invalid, it returns the response.
func fenceOf(r *http.Request) (Fence, *problem) {
	var values []string
	for _, name := range []string{headerName, headerToken, headerFloor} {
		switch v := r.Header.Values(name); len(v) {
		case 0:
			return Fence{}, plain(http.StatusPreconditionRequired, fmt.Sprintf("the header %s is missing", name))
		case 1:
			values = append(values, v[0])
		default:
			return Fence{}, plain(http.StatusBadRequest, fmt.Sprintf("the header %s is given more than once", name))
		}
	}
	name, err := url.PathUnescape(values[0])
	token, err2 := strconv.ParseInt(values[1], 10, 64)
	floor, err3 := strconv.ParseInt(values[2], 10, 64)
	f := Fence{Name: name, Token: token, Floor: floor}
	if errors.Join(err, err2, err3) != nil || !f.valid() {
		return Fence{}, plain(http.StatusBadRequest, "the headers are not a valid fencing token: want 0 < floor <= token")
	}
	return f, nil
}

// plain returns a problem document without a type of its own.
func plain(status int, title string) *problem {
	return &problem{Type: "about:blank", Title: title, Status: status}
}

func (p *problem) answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // an error means that the client has gone
}
