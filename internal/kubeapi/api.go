// Package kubeapi is a small client for the Lease objects of Kubernetes (coordination.k8s.io/v1). Its
// errors are those of package driver, or ErrAbsent.
package kubeapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/httpcall"
)

// API sends requests about the Lease objects of a namespace.
type API struct {
	leases string // the URL of the collection
	token  func() (string, error)
	client http.Client
	rights rights
}

// Object is a Lease object, or the part of it that a write changes.
type Object struct {
	APIVersion string   `json:"apiVersion,omitempty"`
	Kind       string   `json:"kind,omitempty"`
	Metadata   Metadata `json:"metadata"`
	Spec       *Spec    `json:"spec,omitempty"`
}

// Metadata is that of an object or a list.
type Metadata struct {
	Name            string            `json:"name,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	Continue        string            `json:"continue,omitempty"` // the token of the next page
}

// Spec is the spec of a Lease object.
type Spec struct {
	Holder      string `json:"holderIdentity"`
	Seconds     int64  `json:"leaseDurationSeconds,omitempty"`
	Acquired    string `json:"acquireTime,omitempty"`
	Renewed     string `json:"renewTime,omitempty"`
	Transitions int64  `json:"leaseTransitions"`
}

// List is a list of objects, or a page of it. It has the revision that it shows.
type List struct {
	Metadata Metadata `json:"metadata"`
	Items    []Object `json:"items"`
}

// ErrAbsent is the error of an object that does not exist.
var ErrAbsent = errors.New("there is no such object") // 404

// The server refuses the account, or a proxy has no server. Both are ErrConfig and may pass.
var (
	errRefused  = fmt.Errorf("%w", driver.ErrConfig) // 401, 403
	errNoServer = fmt.Errorf("%w", errRefused)       // 404
)

// errOld is the error of a revision that was compacted.
var errOld = errors.New("the revision was compacted") // 410

// New returns a client with a complete login. It sends nothing.
func New(l Login, client *http.Client) *API {
	path := "/apis/coordination.k8s.io/v1/namespaces/" + url.PathEscape(l.Namespace) + "/leases"
	a := &API{leases: strings.TrimSuffix(l.Server, "/") + path, token: l.Token, client: *client}
	// A PATCH would be redirected as a GET, whose answer looks like that of a write.
	a.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return a
}

// Get returns an object, and the Date of the answer.
func (a *API) Get(ctx context.Context, name string) (o Object, at time.Time, err error) {
	at, err = a.do(ctx, http.MethodGet, name, nil, nil, into(&o))
	return o, at, err
}

// Write creates an object, or changes it if it still has its resourceVersion. A merge patch keeps
// the labels and annotations of others. Nothing is retried: if the first attempt had succeeded, the
// second one would be refused. An account that may not change objects creates none.
func (a *API) Write(ctx context.Context, o *Object) (next Object, at time.Time, err error) {
	if o.Metadata.ResourceVersion == "" {
		if err := a.mayPatch(ctx, o.Metadata.Name); err != nil {
			return next, at, err
		}
		o.APIVersion, o.Kind = "coordination.k8s.io/v1", "Lease"
		if at, err = a.do(ctx, http.MethodPost, "", nil, o, into(&next)); errors.Is(err, ErrAbsent) {
			err = fmt.Errorf("%w: the namespace does not exist", driver.ErrConfig)
		}
		return next, at, err
	}
	if at, err = a.do(ctx, http.MethodPatch, o.Metadata.Name, nil, o, into(&next)); errors.Is(err, ErrAbsent) {
		err = driver.ErrConflict
	}
	return next, at, err
}

// mayPatch returns an error if the account may not change an object: a lock in an object that it creates
// could not be released. Until the server has served a PATCH, it sends one without a change.
func (a *API) mayPatch(ctx context.Context, name string) error {
	if a.rights.has(http.MethodPatch) {
		return nil
	}
	_, err := a.do(ctx, http.MethodPatch, name, nil, struct{}{}, into(new(any)))
	if errors.Is(err, ErrAbsent) || errors.Is(err, driver.ErrConflict) {
		return nil
	}
	return err
}

// Remove deletes an object if it still has its resourceVersion.
func (a *API) Remove(ctx context.Context, o Metadata) error {
	condition := map[string]Metadata{"preconditions": {ResourceVersion: o.ResourceVersion}}
	_, err := a.do(ctx, http.MethodDelete, o.Name, nil, condition, into(new(any)))
	return err
}

// List returns a list of objects, or the page that a query names.
func (a *API) List(ctx context.Context, query url.Values) (l List, at time.Time, err error) {
	at, err = a.do(ctx, http.MethodGet, "", query, nil, into(&l))
	return l, at, err
}

// Watch waits until the object with a name changes after a revision, and returns it. It has no
// resourceVersion if it was deleted. The object is nil if nothing has changed for about wait.
func (a *API) Watch(ctx context.Context, name, revision string, wait time.Duration) (changed *Object, err error) {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	query := url.Values{
		"watch": {"true"}, "fieldSelector": {"metadata.name=" + name}, "resourceVersion": {revision},
		"timeoutSeconds": {strconv.Itoa(int(wait.Seconds()))},
	}
	_, err = a.do(limited, http.MethodGet, "", query, nil, func(body io.Reader) (err error) {
		changed, err = next(json.NewDecoder(body))
		return err
	})
	if limited.Err() != nil && ctx.Err() == nil || errors.Is(err, errOld) {
		return nil, nil
	}
	return changed, err
}

// next returns the object of the first event that is about one, or nil if the server ends the watch.
func next(events *json.Decoder) (*Object, error) {
	for {
		var event struct {
			Type   string
			Object struct {
				Object
				Code int
			}
		}
		if events.Decode(&event) != nil {
			return nil, nil // a server may end a watch at any time
		}
		o := &event.Object.Object
		switch event.Type {
		case "BOOKMARK":
			continue
		case "ERROR":
			return nil, problem(event.Object.Code, http.NoBody)
		case "DELETED":
			o.Metadata.ResourceVersion = ""
		}
		return o, nil
	}
}

// into returns a function that decodes the whole answer.
func into(out any) func(io.Reader) error {
	return func(body io.Reader) error {
		text, err := io.ReadAll(body)
		if err == nil {
			err = json.Unmarshal(text, out)
		}
		return err
	}
}

// do sends a request, and lets read read the answer unless that is an error. It returns the Date of
// the answer.
func (a *API) do(ctx context.Context, method, name string, query url.Values, in any, read func(io.Reader) error) (at time.Time, err error) {
	var body []byte
	if in != nil {
		body, _ = json.Marshal(in) // it consists of strings and numbers
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(a.leases+"/"+name, "/"), bytes.NewReader(body))
	if err != nil {
		return at, fmt.Errorf("%w: %w", driver.ErrConfig, err)
	}
	r.URL.RawQuery = query.Encode()
	r.Header = http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {"fencelock"}}
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if a.token != nil {
		token, err := a.token()
		if err != nil {
			return at, fmt.Errorf("%w: the token: %w", driver.ErrConfig, err)
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	}
	answer, err := httpcall.Do(&a.client, r)
	if err != nil {
		return at, err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		err = a.rights.judge(method, problem(answer.StatusCode, answer.Body))
		if !errors.Is(err, ErrAbsent) { // that is an answer about the object, and the store's clock is read with it
			return at, err
		}
	}
	at, undated := http.ParseTime(answer.Header.Get("Date"))
	switch {
	case undated != nil:
		return at, fmt.Errorf("the answer has no time: %w", undated)
	case err != nil:
		return at, err
	}
	a.rights.admit(method)
	return at, read(answer.Body)
}

// problem returns the error of an answer that is one.
func problem(code int, body io.Reader) error {
	var status struct{ Reason, Message string }
	_ = into(&status)(io.LimitReader(body, 1<<20)) // a proxy's answer is not JSON
	kind, hint := driver.ErrConfig, ""
	switch {
	case code == http.StatusNotFound && status.Reason == "NotFound":
		return ErrAbsent
	case code == http.StatusNotFound: // of a proxy without servers, or a wrong URL
		kind, hint = errNoServer, " (this is no API server: check its URL)"
	case code == http.StatusConflict: // also if an object exists that was to be created
		return driver.ErrConflict
	case code == http.StatusGone:
		return errOld
	case code == http.StatusBadRequest && status.Reason == "": // the answer to HTTP on a port for HTTPS
		hint = " (this is no API server, or its URL must begin with https)"
	case code/100 == 3:
		hint = " (a redirect: set the URL of the API server to where it leads)"
	case code == http.StatusTooManyRequests || code >= 500:
		kind = driver.ErrUnavailable
	case code == http.StatusUnprocessableEntity || code == http.StatusRequestEntityTooLarge:
		kind = driver.ErrInvalid
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		kind, hint = errRefused, " (the account needs get, list, watch, create and patch on leases of coordination.k8s.io)"
	}
	text := cmp.Or(status.Reason, http.StatusText(code))
	if status.Message != "" {
		text += ": " + status.Message
	}
	return fmt.Errorf("%w: the API server answers %d %s%s", kind, code, text, hint)
}
