//go:build unix

package engineurl

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
	"github.com/fencelock/fencelock/redlock"
)

// redlockParameters is what a URL of Redlock may say after the question mark. Quarantine
// is on unless the URL says off, so there is no quarantine=on.
var redlockParameters = []string{"max-ttl", "quarantine", "eviction", "prefix", "timeout", "tls", "ca", "cert", "key"}

// redlockTarget is what a URL of Redlock asks for: the same of every node.
type redlockTarget struct {
	redisClient
	engine redlock.Config
}

// openRedlock makes the engine of a URL. Nodes are connected to when they are
// first asked: some may be down, and a majority is enough. So ctx bounds nothing here.
func openRedlock(_ context.Context, u *url.URL) (driver.Engine, func() error, error) {
	target, err := parseRedlock(u)
	if err != nil {
		return nil, nil, err
	}
	var conns []redlock.Node
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

// dialer returns what connects to one node. The engine calls it again, later, for a node
// that could not be reached.
func (r *redlockTarget) dialer(addr string) func() (rueidis.Client, error) {
	option := r.option
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
// anyway: the engine looks at what kind it is.
func (r *redlockTarget) clean(err error) error {
	err = r.inTime(err)
	if text := r.hide(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// parseRedlock reads a URL. It connects to nothing.
func parseRedlock(u *url.URL) (*redlockTarget, error) {
	q, err := parseKnown(u, redlockParameters...)
	if err != nil {
		return nil, err
	}
	client, err := newRedisClient(u, q)
	if err != nil {
		return nil, err
	}
	r := &redlockTarget{redisClient: client, engine: redlock.Config{
		Prefix:        q.Get("prefix"),
		NoQuarantine:  q.only("quarantine", "off"),
		AllowEviction: q.only("eviction", "allow"),
		MaxTTL:        q.duration("max-ttl", shortestTTL, "30s"),
		// A silent node is known to be silent after its timeout. A second more, and a majority
		// that answers was heard as well.
		RetryTimeout: client.option.Dialer.Timeout + time.Second,
	}}
	return r, cmp.Or(r.setNodes(u), q.err)
}

// setNodes reads the masters, whose addresses are their names as well: a node refuses
// clients that name another set. An even number has no better majority than one less, and
// fewer than three survive nothing.
func (r *redlockTarget) setNodes(u *url.URL) error {
	nodes, err := addresses(u.Host, redisPort)
	if err != nil {
		return err
	}
	if n := len(nodes); n < 3 || n%2 == 0 {
		return fmt.Errorf("the URL names %d servers; redlock needs an odd number of at least 3", n)
	}
	sorted := slices.Sorted(slices.Values(nodes))
	for i, addr := range sorted[1:] {
		if addr == sorted[i] {
			return fmt.Errorf("the URL names %s twice; all servers must be different", addr)
		}
	}
	r.engine.Nodes = nodes
	r.option.SelectDB, err = database(strings.TrimPrefix(u.Path, "/"))
	return err
}
