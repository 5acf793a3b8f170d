//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/kubeapi"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/kuberecords"
)

// kubeTarget is a parsed URL of Kubernetes.
type kubeTarget struct {
	login     kubeapi.Login
	transport *http.Transport
	timeout   time.Duration
	prefix    string // of the names of the locks of a part
}

// openKube connects once and returns the engine of the URL.
func openKube(ctx context.Context, u *url.URL, o options) (driver.Engine, func() error, error) {
	target, err := parseKube(u)
	if err != nil {
		return nil, nil, err
	}
	throughHTTP(target.transport, o.dial)
	records, err := kuberecords.New(&kuberecords.Config{
		Namespace: target.login.Namespace, Server: target.login.Server, Token: target.login.Token,
		Client: &http.Client{Transport: target.transport}, Timeout: target.timeout,
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
	return engine, func() error { return closeBoth(engine.Close, target.transport.CloseIdleConnections) }, nil
}

// parseKube parses a URL. It reads files of the service account, and does not connect.
func parseKube(u *url.URL) (*kubeTarget, error) {
	if u.Opaque != "" || u.Fragment != "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.Port() != "" {
		return nil, errors.New("write only a namespace after the slashes")
	}
	q, err := parseKnown(u, "server", "ca", "token-file", "timeout")
	if err != nil {
		return nil, err
	}
	t := &kubeTarget{timeout: q.duration("timeout", 100*time.Millisecond, "5s")}
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
	if t.login, err = login.Complete(); err == nil {
		t.transport, err = t.login.Transport()
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

// clusterRate bounds the writes of a store whose members agree on each: an acquisition has several.
// Of etcd, the whole cluster of Kubernetes depends on it.
const clusterRate = 50

// kubePart returns the objects of the locks whose names begin with a prefix.
func kubePart(u *url.URL, prefix string) (*Part, error) {
	target, err := parseKube(u)
	if err != nil {
		return nil, err
	}
	target.prefix = prefix
	p := &Part{URL: u.String(), Names: prefix, Rate: clusterRate, Dead: DeadLeases, sweep: target.sweep}
	if server, err := url.Parse(target.login.Server); err == nil {
		p.Hosts = []string{server.Hostname()}
	}
	return p, nil
}

// kubePage is how many objects are read at once, and kubePatience limits each request.
const kubePage, kubePatience = "500", 15 * time.Second

// sweep counts the objects of the part and deletes them.
func (t *kubeTarget) sweep(ctx context.Context, remove bool) (n int, err error) {
	defer t.transport.CloseIdleConnections()
	api := kubeapi.New(t.login, &http.Client{Transport: t.transport, Timeout: cmp.Or(t.timeout, kubePatience)})
	if err := mayDelete(ctx, api); err != nil {
		return 0, err
	}
	query := url.Values{"limit": {kubePage}}
	for {
		page, _, err := api.List(ctx, query)
		if err != nil {
			return n, fmt.Errorf("list the Lease objects: %w", err)
		}
		for _, o := range page.Items {
			if !t.has(&o) {
				continue
			}
			n++
			if !remove {
				continue
			}
			if err := api.Remove(ctx, o.Metadata); err != nil && !errors.Is(err, kubeapi.ErrAbsent) && !errors.Is(err, driver.ErrConflict) {
				return n, fmt.Errorf("delete the Lease object %s: %w", o.Metadata.Name, err)
			}
		}
		if page.Metadata.Continue == "" {
			return n, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// mayDelete returns an error unless the account may delete objects, without which a run would leave
// them. The rights are checked before it is found that this one does not exist.
func mayDelete(ctx context.Context, api *kubeapi.API) error {
	err := api.Remove(ctx, kubeapi.Metadata{Name: "fencelock-" + strings.ToLower(rand.Text())})
	if err == nil || errors.Is(err, kubeapi.ErrAbsent) {
		return nil
	}
	err = fmt.Errorf("delete a Lease object that does not exist: %w", err)
	if !errors.Is(err, driver.ErrConfig) {
		return err
	}
	return &HintError{Err: err, Hint: "an account that may also delete Lease objects"}
}

// kubeKey is the annotation with the key of an object.
const kubeKey = "fencelock.github.io/key"

// has reports whether an object belongs to the part. One without a key is that of another program,
// and is the lock with its name.
func (t *kubeTarget) has(o *kubeapi.Object) bool {
	key := cmp.Or(o.Metadata.Annotations[kubeKey], lockKeys+o.Metadata.Name)
	return strings.HasPrefix(key, lockKeys+t.prefix)
}
