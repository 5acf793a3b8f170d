//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redlock"
)

// redlockParameters is what a URL of Redlock may say after the question mark.
var redlockParameters = []string{"max-ttl", "quarantine", "eviction", "prefix", "timeout", "tls", "ca", "cert", "key", "insecure"}

// redlockTarget is what a URL of Redlock asks for: the same of every node.
type redlockTarget struct {
	*redisTarget
	engine redlock.Config
}

// openRedlock makes the engine of a URL. Nodes are connected to when they are
// first asked: some may be down.
func openRedlock(_ context.Context, u *url.URL) (driver.Engine, func() error, error) {
	target, err := parseRedlock(u)
	if err != nil {
		return nil, nil, err
	}
	var conns []redislock.Conn
	var lazies []*redlock.Lazy
	for _, addr := range target.engine.Nodes {
		lazy := redlock.NewLazy(target.dialer(addr))
		conns, lazies = append(conns, lazy), append(lazies, lazy)
	}
	engine := redlock.New(conns, &target.engine)
	return engine, func() error {
		return closeBoth(engine.Close, func() {
			for _, lazy := range lazies {
				lazy.Close()
			}
		})
	}, nil
}

// dialer connects to one node.
func (r *redlockTarget) dialer(addr string) func() (rueidis.Client, error) {
	option := r.client
	option.InitAddress = []string{addr}
	return func() (rueidis.Client, error) {
		client, err := rueidis.NewClient(option)
		if err != nil {
			return nil, r.clean(err)
		}
		return client, nil
	}
}

// clean is an error that shows no password. It stays as it is if it does not
// anyway.
func (r *redlockTarget) clean(err error) error {
	text := r.hide(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v", r.client.Dialer.Timeout)
	case text != err.Error():
		return errors.New(text)
	}
	return err
}

// parseRedlock reads a URL. It connects to nothing.
func parseRedlock(u *url.URL) (*redlockTarget, error) {
	query, err := parameters(u, redlockParameters...)
	if err != nil {
		return nil, err
	}
	base, err := newRedisTarget(u)
	if err != nil {
		return nil, err
	}
	r := &redlockTarget{redisTarget: base}
	for _, set := range []func(*url.URL, url.Values) error{r.setNodes, r.setTimes, r.setEngine, r.setTLS} {
		if err := set(u, query); err != nil {
			return nil, fmt.Errorf("%s: %w", u.Scheme, err)
		}
	}
	r.engine.RetryTimeout = r.client.Dialer.Timeout + time.Second
	return r, nil
}

// setNodes reads the masters, whose addresses are their names as well.
func (r *redlockTarget) setNodes(u *url.URL, _ url.Values) error {
	nodes, err := addresses(u.Host, redisPort)
	if err != nil {
		return err
	}
	if n := len(nodes); n < 3 || n%2 == 0 {
		return fmt.Errorf("the URL names %d of the odd number of masters, three or more, that redlock needs; write redlock://h1:p1,h2:p2,h3:p3", n)
	}
	sorted := slices.Sorted(slices.Values(nodes))
	for i, addr := range sorted[1:] {
		if addr == sorted[i] {
			return fmt.Errorf("the URL names %s twice; each master must be independent of the others", addr)
		}
	}
	r.engine.Nodes = nodes
	r.client.SelectDB, err = database(strings.TrimPrefix(u.Path, "/"))
	return err
}

// setEngine reads what concerns the locks.
func (r *redlockTarget) setEngine(_ *url.URL, query url.Values) error {
	var none, evict, long error
	r.engine.Prefix = query.Get("prefix")
	r.engine.NoQuarantine, none = word(query, "quarantine", "off")
	r.engine.AllowEviction, evict = word(query, "eviction", "allow")
	r.engine.MaxTTL, long = span(query, "max-ttl", shortestTTL)
	return cmp.Or(none, evict, long)
}
