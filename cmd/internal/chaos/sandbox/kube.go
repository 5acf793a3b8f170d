//go:build unix

package sandbox

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

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/kubeapi"
)

// ofKubernetes returns the objects of the locks whose names begin with a prefix.
func ofKubernetes(u *url.URL, k *engineurl.Kubernetes, prefix string) *Sandbox {
	s := &Sandbox{URL: u.String(), Names: prefix, Rate: clusterRate, Dead: DeadLeases, sweep: objects{k, prefix}.sweep}
	if server, err := url.Parse(k.Login.Server); err == nil {
		s.Hosts = []string{server.Hostname()}
	}
	return s
}

// objects are the Lease objects of the locks whose names begin with a prefix.
type objects struct {
	*engineurl.Kubernetes
	prefix string
}

// kubePage is how many objects are read at once, and kubePatience limits each request.
const kubePage, kubePatience = "500", 15 * time.Second

// sweep counts the objects and deletes them.
func (o objects) sweep(ctx context.Context, remove bool) (n int, err error) {
	defer o.Transport.CloseIdleConnections()
	api := kubeapi.New(o.Login, &http.Client{Transport: o.Transport, Timeout: cmp.Or(o.Timeout, kubePatience)})
	if err := mayDelete(ctx, api); err != nil {
		return 0, err
	}
	query := url.Values{"limit": {kubePage}}
	for {
		page, _, err := api.List(ctx, query)
		if err != nil {
			return n, fmt.Errorf("list the Lease objects: %w", err)
		}
		for _, lease := range page.Items {
			if !o.has(&lease) {
				continue
			}
			n++
			if !remove {
				continue
			}
			if err := api.Remove(ctx, lease.Metadata); err != nil && !errors.Is(err, kubeapi.ErrAbsent) && !errors.Is(err, driver.ErrConflict) {
				return n, fmt.Errorf("delete the Lease object %s: %w", lease.Metadata.Name, err)
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
	return &engineurl.HintError{Err: err, Hint: "an account that may also delete Lease objects"}
}

// kubeKey is the annotation with the key of an object.
const kubeKey = "fencelock.github.io/key"

// has reports whether an object belongs to the sandbox. One without a key is that of another program,
// and is the lock with its name.
func (o objects) has(lease *kubeapi.Object) bool {
	key := cmp.Or(lease.Metadata.Annotations[kubeKey], lockKeys+lease.Metadata.Name)
	return strings.HasPrefix(key, lockKeys+o.prefix)
}
