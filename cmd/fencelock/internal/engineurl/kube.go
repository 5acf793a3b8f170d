//go:build unix

package engineurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/kubelock"
	"github.com/fencelock/fencelock/recordlock"
)

// openKube connects once and returns the engine of the URL. PartOf refuses these URLs, so no caller
// has a dialer.
func openKube(ctx context.Context, u *url.URL, _ dialer) (driver.Engine, func() error, error) {
	if u.Opaque != "" || u.Fragment != "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.Port() != "" {
		return nil, nil, errors.New("write only a namespace after the slashes")
	}
	q, err := parseKnown(u, "server", "ca", "token-file", "timeout")
	if err != nil {
		return nil, nil, err
	}
	cfg := kubelock.Config{Namespace: u.Hostname(), Server: q.Get("server"), CAFile: q.Get("ca"), Timeout: q.duration("timeout", 100*time.Millisecond, "5s")}
	if q.Has("token-file") {
		cfg.Token = kubelock.TokenFile(q.Get("token-file"))
	}
	if server, err := url.Parse(cfg.Server); q.Has("server") && (err != nil || !plainHTTP(server)) {
		// Its text may contain a password or a token.
		return nil, nil, errors.New("server= is wrong; write the URL of an API server, such as https://10.0.0.1:6443")
	}
	if q.err != nil {
		return nil, nil, q.err
	}
	records, err := kubelock.New(&cfg)
	if err == nil {
		_, err = records.Get(ctx, "fencelock") // an error is reported before a request waits and retries
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if err == nil {
		engine := recordlock.New(records, &recordlock.Config{Name: "kubernetes"})
		return engine, engine.Close, nil
	}
	kind, hint := driver.ErrUnavailable, hintUnreachable
	if errors.Is(err, driver.ErrConfig) {
		kind, hint = driver.ErrConfig, "in a pod, use its service account; elsewhere, add ?server=URL&ca=FILE&token-file=FILE, or use kubectl proxy and ?server=http://127.0.0.1:8001"
	}
	text := strings.TrimPrefix(driver.OneLine(err).Error(), kind.Error()+": ")
	return nil, nil, &HintError{Err: fmt.Errorf("%w: %s", kind, text), Hint: hint}
}
