package kubelock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// api sends requests about the Lease objects of a namespace.
type api struct {
	leases string // the URL of the collection
	token  func() (string, error)
	client http.Client
}

// object is a Lease object, or the part of it that a write changes.
type object struct {
	APIVersion string   `json:"apiVersion,omitempty"`
	Kind       string   `json:"kind,omitempty"`
	Metadata   metadata `json:"metadata"`
	Spec       *spec    `json:"spec,omitempty"`
}

// metadata is that of an object or a list.
type metadata struct {
	Name            string            `json:"name,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	Continue        string            `json:"continue,omitempty"` // the token of the next page
}

var (
	errAbsent = errors.New("there is no such object")    // 404
	errOld    = errors.New("the revision was compacted") // 410
)

// write creates an object, or changes it if it still has its resourceVersion. A merge patch keeps
// the labels and annotations of others. Nothing is retried: if the first attempt had succeeded, the
// second one would be refused.
func (a *api) write(ctx context.Context, o *object) (next object, at time.Time, err error) {
	if o.Metadata.ResourceVersion == "" {
		o.APIVersion, o.Kind = "coordination.k8s.io/v1", "Lease"
		if at, err = a.do(ctx, http.MethodPost, "", nil, o, into(&next)); errors.Is(err, errAbsent) {
			err = fmt.Errorf("%w: the namespace does not exist", driver.ErrConfig)
		}
		return next, at, err
	}
	if at, err = a.do(ctx, http.MethodPatch, o.Metadata.Name, nil, o, into(&next)); errors.Is(err, errAbsent) {
		err = driver.ErrConflict
	}
	return next, at, err
}

// remove deletes an object if it still has its resourceVersion.
func (a *api) remove(ctx context.Context, o metadata) error {
	condition := map[string]metadata{"preconditions": {ResourceVersion: o.ResourceVersion}}
	_, err := a.do(ctx, http.MethodDelete, o.Name, nil, condition, into(new(any)))
	return err
}

// leases is a list of objects, or a page of it. It has the revision that it shows.
type leases struct {
	Metadata metadata `json:"metadata"`
	Items    []object `json:"items"`
}

func (a *api) list(ctx context.Context, query url.Values) (l leases, at time.Time, err error) {
	at, err = a.do(ctx, http.MethodGet, "", query, nil, into(&l))
	return l, at, err
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
func (a *api) do(ctx context.Context, method, name string, query url.Values, in any, read func(io.Reader) error) (at time.Time, err error) {
	var body []byte
	if in != nil {
		if body, err = json.Marshal(in); err != nil {
			return at, fmt.Errorf("%w: %w", driver.ErrInvalid, err)
		}
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
	answer, err := a.client.Do(r)
	if err != nil {
		return at, err
	}
	defer answer.Body.Close()
	if at, err = http.ParseTime(answer.Header.Get("Date")); err != nil {
		return at, err
	}
	if answer.StatusCode/100 != 2 {
		return at, problem(answer.StatusCode, answer.Body)
	}
	return at, read(answer.Body)
}

// problem returns the error of an answer that is one.
func problem(code int, body io.Reader) error {
	var status struct{ Reason, Message string }
	_ = into(&status)(io.LimitReader(body, 1<<20)) // a proxy's answer is not JSON
	kind, hint := driver.ErrConfig, ""
	switch {
	case code == http.StatusNotFound && status.Reason == "NotFound":
		return errAbsent
	case code == http.StatusNotFound: // of a proxy without servers, or a wrong URL
		hint = " (this is no API server: check its URL)"
	case code == http.StatusConflict: // also if an object exists that was to be created
		return driver.ErrConflict
	case code == http.StatusGone:
		return errOld
	case code/100 == 3:
		hint = " (a redirect: set the URL of the API server to where it leads)"
	case code == http.StatusTooManyRequests || code >= 500:
		kind = driver.ErrUnavailable
	case code == http.StatusUnprocessableEntity || code == http.StatusRequestEntityTooLarge:
		kind = driver.ErrInvalid
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		hint = " (the account needs get, list, watch, create and patch on leases of coordination.k8s.io)"
	}
	return fmt.Errorf("%w: the API server answers %d %s: %s%s", kind, code, status.Reason, status.Message, hint)
}
