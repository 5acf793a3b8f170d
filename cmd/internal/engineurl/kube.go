//go:build unix

package engineurl

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/kubeapi"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/kuberecords"
)

// Kubernetes is a parsed URL of Kubernetes.
type Kubernetes struct {
	Login     kubeapi.Login
	Transport *http.Transport
	Timeout   time.Duration
}

// Open connects once and returns the engine.
func (t *Kubernetes) Open(ctx context.Context, _ *slog.Logger) (driver.Engine, func() error, error) {
	records, err := kuberecords.New(&kuberecords.Config{
		Namespace: t.Login.Namespace, Server: t.Login.Server, Token: t.Login.Token,
		Client: &http.Client{Transport: t.Transport}, Timeout: t.Timeout,
	})
	if err == nil {
		_, err = records.Get(ctx, "fencelock") // an error is reported before a request waits and retries
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if err != nil {
		return nil, nil, explainKube(err)
	}
	engine := recordlock.New(records, &recordlock.Config{Name: "kubernetes"})
	return engine, func() error { return closeBoth(engine.Close, t.Transport.CloseIdleConnections) }, nil
}

// parseKube parses a URL. It reads files of the service account, and does not connect.
func parseKube(u *url.URL) (*Kubernetes, error) {
	if u.Opaque != "" || u.Fragment != "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.Port() != "" {
		return nil, errors.New("write only a namespace after the slashes")
	}
	q, err := parseKnown(u, "server", "ca", "token-file", "timeout")
	if err != nil {
		return nil, err
	}
	t := &Kubernetes{Timeout: q.duration("timeout", 100*time.Millisecond, "5s")}
	login := kubeapi.Login{Namespace: u.Hostname(), Server: q.Get("server"), CAFile: q.Get("ca")}
	if q.Has("token-file") {
		login.Token = kubeapi.TokenFile(q.Get("token-file"))
	}
	if server, err := url.Parse(login.Server); q.Has("server") && (err != nil || !plainHTTP(server)) {
		// Its text may contain a password or a token.
		return nil, errors.New("server= is wrong; write the URL of an API server, such as https://10.0.0.1:6443")
	}
	if q.err != nil {
		return nil, q.err
	}
	if t.Login, err = login.Complete(); err == nil {
		t.Transport, err = t.Login.Transport()
	}
	if err != nil {
		return nil, explainKube(err)
	}
	return t, nil
}

// explainKube adds a hint to an error.
func explainKube(err error) error {
	return explain(err, nil, "", "in a pod, use its service account; elsewhere, add ?server=URL&ca=FILE&token-file=FILE, or use kubectl proxy and ?server=http://127.0.0.1:8001")
}
