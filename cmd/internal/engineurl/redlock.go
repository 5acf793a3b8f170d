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

// redlockParameters are the parameters of redlock://. Quarantine is on by default, so there is no
// quarantine=on.
var redlockParameters = []string{"max-ttl", "quarantine", "eviction", "prefix", "timeout", "tls", "ca", "cert", "key"}

// redlockTarget is a parsed URL of Redlock. The client options apply to every server.
type redlockTarget struct {
	redisClient
	engine redlock.Config
}

// openRedlock opens the engine of a URL. The engine connects to each server on first use, since
// some servers may be down and a majority is enough.
func openRedlock(_ context.Context, u *url.URL, o options) (driver.Engine, func() error, error) {
	target, err := parseRedlock(u)
	if err != nil {
		return nil, nil, err
	}
	target.through(o.dial)
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

// dialer returns a function that connects to a server. The engine calls it again for a server that
// was unreachable.
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

// clean removes passwords from an error. If err contains none, clean keeps its type, which the
// engine checks.
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
		MaxTTL:        q.duration("max-ttl", ShortestTTL, "30s"),
		// A server that does not answer is detected after its timeout. One more second is enough
		// for the answers of a majority of the others.
		RetryTimeout: client.option.Dialer.Timeout + time.Second,
	}}
	return r, cmp.Or(r.setNodes(u), q.err)
}

// setNodes reads the servers. Their addresses are also their names, and a server refuses clients
// whose list of names differs. setNodes refuses fewer than three servers, which would not survive
// the failure of one, and an even number, which survives no more failures than one server less.
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

// redlockPart returns the keys with a prefix on all servers.
func redlockPart(u *url.URL, prefix string) (*Part, error) {
	withPrefix(u, prefix)
	target, err := parseRedlock(u)
	if err != nil {
		return nil, err
	}
	var clients []redisClient
	for _, addr := range target.engine.Nodes {
		client := target.redisClient
		client.option.InitAddress = []string{addr}
		clients = append(clients, client)
	}
	p := keysPart(u, clients...)
	p.New = true
	return p, nil
}
