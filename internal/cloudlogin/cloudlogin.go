// Package cloudlogin signs requests to Azure Blob Storage and Google Cloud Storage.
package cloudlogin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// ErrNone means that there is no login that can be used.
var ErrNone = fmt.Errorf("%w: no login can be used", driver.ErrConfig)

// token is a bearer token, and when it expires.
type token struct {
	text    string
	expires time.Time
}

// Bearer signs requests with a token, which it renews. It is safe for concurrent use.
type Bearer struct {
	fetch func(context.Context) (token, error)

	slot chan struct{} // holds one value: that of the goroutine that may use the fields below, also while it asks for a token
	now  token
	try  time.Time // when to renew it
}

// bearer returns a Bearer without a token.
func bearer(fetch func(context.Context) (token, error)) *Bearer {
	return &Bearer{fetch: fetch, slot: make(chan struct{}, 1)}
}

// When tokens are renewed, while the old ones are still used.
const (
	early = 5 * time.Minute  // before they expire
	again = 10 * time.Second // after an attempt, which lasts as long at most
)

// Sign adds a token to a request. The request waits for one only if there is none that is valid.
func (b *Bearer) Sign(r *http.Request, _ string) error {
	t, err := b.current(r.Context())
	if err == nil {
		r.Header.Set("Authorization", "Bearer "+t)
	}
	return err
}

func (b *Bearer) current(ctx context.Context) (string, error) {
	select { // the caller that has the slot may wait for a source that says nothing
	case b.slot <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-b.slot }()
	now := time.Now()
	if b.now.text == "" || !now.Before(b.now.expires) {
		t, err := b.fetch(ctx)
		if err != nil {
			return "", err
		}
		b.keep(t)
	} else if !now.Before(b.try) {
		b.try = now.Add(again)
		go b.renew() // ends at its time limit
	}
	return b.now.text, nil
}

// renew replaces the token. The old one stays after an error.
func (b *Bearer) renew() {
	ctx, cancel := context.WithTimeout(context.Background(), again)
	defer cancel()
	t, err := b.fetch(ctx)
	if err != nil {
		return
	}
	b.slot <- struct{}{}
	defer func() { <-b.slot }()
	b.keep(t)
}

// keep uses a token from now on. The caller has the slot.
func (b *Bearer) keep(t token) {
	b.now, b.try = t, t.expires.Add(-early)
	if soonest := time.Now().Add(again); b.try.Before(soonest) {
		b.try = soonest
	}
}

// maxAnswer is the longest answer of a source.
const maxAnswer = 1 << 20

// ask sends a request, and decodes its answer, which is JSON.
func ask(client *http.Client, r *http.Request, out any) error {
	answer, err := client.Do(r)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if err != nil {
		return fmt.Errorf("a token from %s: %w", r.URL.Host, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("a token from %s: %w", r.URL.Host, err)
	}
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return fmt.Errorf("%w: a token from %s: %s %.300s", ErrNone, r.URL.Host, answer.Status, strings.Join(strings.Fields(string(text)), " "))
	default:
		return fmt.Errorf("a token from %s: %s %.300s", r.URL.Host, answer.Status, strings.Join(strings.Fields(string(text)), " "))
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("a token from %s: %w", r.URL.Host, err)
	}
	return nil
}

// oauth is the answer of a server of OAuth. Azure's metadata writes the number as a text.
type oauth struct {
	Token   string      `json:"access_token"`
	Seconds json.Number `json:"expires_in"`
}

func (o oauth) token(sent time.Time) (token, error) {
	n, err := o.Seconds.Int64()
	if o.Token == "" || err != nil {
		return token{}, errors.New("the answer to a request for a token has none")
	}
	return token{o.Token, sent.Add(time.Duration(n) * time.Second)}, nil
}

// get returns the token that a GET request with headers is answered with.
func get(ctx context.Context, client *http.Client, target string, header map[string]string) (token, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return token{}, err
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	return answered(client, r)
}

// post returns the token that a form is answered with.
func post(ctx context.Context, client *http.Client, target string, form url.Values) (token, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(form.Encode()))
	if err != nil {
		return token{}, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return answered(client, r)
}

// answered returns the token that a request is answered with.
func answered(client *http.Client, r *http.Request) (token, error) {
	var out oauth
	sent := time.Now()
	if err := ask(client, r, &out); err != nil {
		return token{}, err
	}
	return out.token(sent)
}

// readToken reads a file with a token.
func readToken(name string) (string, error) {
	text, err := os.ReadFile(name)
	return strings.TrimSpace(string(text)), err
}
