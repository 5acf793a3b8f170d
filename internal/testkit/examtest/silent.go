package examtest

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
)

// SilentConnections drops all connections to a server without a word, as a NAT does, while new ones
// work. The lock that is held is renewed. open returns an engine for the server at a URL.
func SilentConnections(t *testing.T, server string, open func(url string) driver.Engine) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := faults.NewProxy(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	e := open(strings.Replace(server, u.Host, proxy.Addr(), 1))
	const ttl = 9 * time.Second
	locks := fencelock.New(e, nil).With(fencelock.Options{TTL: ttl})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for i := range 64 { // so that there are many connections
		all.Go(func() {
			if err := locks.Do(ctx, fmt.Sprint("n", i), func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	lock, err := locks.Acquire(ctx, "held")
	if err != nil {
		t.Fatal(err)
	}
	links := proxy.Links()
	for _, l := range links {
		l.Stall(faults.Both)
	}
	select {
	case <-lock.Context().Done():
		t.Errorf("the lock was lost with %d silent connections: %v", len(links), context.Cause(lock.Context()))
	case <-time.After(ttl + ttl/3):
	}
	_ = lock.Release()
}
