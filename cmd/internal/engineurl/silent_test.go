//go:build unix

package engineurl_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/kubetest"
	"github.com/fencelock/fencelock/internal/testkit/objecttest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// silence is a client whose existing connections have all stopped transferring data. New
// connections work.
type silence struct {
	engine driver.Engine
	held   *fencelock.Lock // acquired before the connections stalled, with a TTL of heldTTL
	since  time.Time       // when the connections stalled
}

const (
	silentTimeout = "?timeout=1s"
	heldTTL       = 6 * time.Second
	// silentLimit is how long after the stall a client may take to acquire another lock. On an idle
	// machine it takes about two seconds.
	silentLimit = 8 * time.Second
)

// silentClient opens the engine of a URL, uses it, and stalls its connections.
func silentClient(t *testing.T, raw string, proxies []*faults.Proxy) silence {
	t.Helper()
	engine, end, err := engineurl.Open(t.Context(), raw, nil)
	for n := 1; n < 20 && errors.Is(err, driver.ErrUnavailable); n++ { // on a busy machine silentTimeout is short
		engine, end, err = engineurl.Open(t.Context(), raw, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = end() })
	locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: heldTTL})
	s := silence{engine: engine}
	if s.held, err = locks.Acquire(t.Context(), "held"); err != nil {
		t.Fatal(err)
	}
	for range 10 { // also opens the connection for calls that are not pipelined
		if err := locks.Do(t.Context(), "used", func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range proxies {
		for _, l := range p.Links() {
			l.Stall(faults.Both)
		}
	}
	s.since = time.Now()
	return s
}

// getsAnother fails the test unless the client acquires another name within silentLimit.
func (s silence) getsAnother(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), s.since.Add(silentLimit))
	defer cancel()
	for {
		_, err := s.engine.Acquire(ctx, driver.Request{Name: "another", TTL: heldTTL})
		if err == nil {
			break
		}
		if !errors.Is(err, driver.ErrUnavailable) || ctx.Err() != nil {
			t.Fatalf("another name, %v after the connections became silent: %v", time.Since(s.since), err)
		}
	}
	t.Logf("another name after %v", time.Since(s.since))
}

// keepsHeld fails the test unless the lock that was acquired before the stall is renewed.
func (s silence) keepsHeld(t *testing.T) {
	t.Helper()
	for !s.held.Deadline().After(s.since.Add(heldTTL)) {
		if err := s.held.Err(); err != nil {
			t.Fatalf("the lock that was held, %v after the connections became silent: %v", time.Since(s.since), err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// proxyFor starts a proxy for a server.
func proxyFor(t *testing.T, addr string) *faults.Proxy {
	t.Helper()
	p, err := faults.NewProxy(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// TestSilentRedis stalls the connections to a Redis. The client opens new ones within about twice
// its timeout, and keeps the lock that it holds.
func TestSilentRedis(t *testing.T) {
	t.Parallel()
	p := proxyFor(t, redistest.StartRedis(t).Addr())
	s := silentClient(t, "redis://"+p.Addr()+silentTimeout, []*faults.Proxy{p})
	s.getsAnother(t)
	s.keepsHeld(t)
}

// TestSilentRedlock is TestSilentRedis for all of three nodes, and for a majority of them.
func TestSilentRedlock(t *testing.T) {
	t.Parallel()
	for _, silent := range []int{2, 3} {
		t.Run(fmt.Sprint(silent), func(t *testing.T) {
			t.Parallel()
			var proxies []*faults.Proxy
			var addrs []string
			for range 3 {
				p := proxyFor(t, redistest.StartRedis(t).Addr())
				proxies, addrs = append(proxies, p), append(addrs, p.Addr())
			}
			s := silentClient(t, "redlock://"+strings.Join(addrs, ",")+silentTimeout+"&quarantine=off", proxies[:silent])
			s.getsAnother(t)
			s.keepsHeld(t)
		})
	}
}

// TestSilentS3 stalls the connections to an object store. The client opens new ones, and keeps the
// lock that it holds.
func TestSilentS3(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
	store := objecttest.Start(t)
	u, err := url.Parse(store.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := proxyFor(t, u.Host)
	s := silentClient(t, "s3://bucket"+silentTimeout+"&endpoint=http://"+p.Addr(), []*faults.Proxy{p})
	s.getsAnother(t)
	s.keepsHeld(t)
}

// TestSilentKubernetes stalls the connections to an API server. The client opens new ones, and keeps
// the lock that it holds.
func TestSilentKubernetes(t *testing.T) {
	t.Parallel()
	p := proxyFor(t, strings.TrimPrefix(kubetest.Start(t).URL, "http://"))
	s := silentClient(t, "k8s://shop"+silentTimeout+"&server=http://"+p.Addr(), []*faults.Proxy{p})
	s.getsAnother(t)
	s.keepsHeld(t)
}
