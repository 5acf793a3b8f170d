//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// Redlock is a parsed URL of Redlock. The client options apply to every server.
type Redlock struct {
	RedisClient
	Engine redlock.Config
}

// Open returns the engine. It connects to each server on first use, since some servers may be down
// and a majority is enough.
func (r *Redlock) Open(context.Context, *slog.Logger) (driver.Engine, func() error, error) {
	var conns []redlock.Node
	var lazies []*redlock.Lazy
	for _, addr := range r.Engine.Nodes {
		option := r.Option
		option.InitAddress = []string{addr}
		lazy := redlock.NewLazy(func() (rueidis.Client, error) { // called again for a server that was unreachable
			client, err := rueidis.NewClient(option)
			if err != nil {
				return nil, r.clean(err)
			}
			return client, nil
		})
		conns, lazies = append(conns, lazy), append(lazies, lazy)
	}
	engine := redlock.New(conns, &r.Engine)
	return engine, func() error {
		return closeBoth(engine.Close, func() {
			for _, lazy := range lazies {
				lazy.Close()
			}
		})
	}, nil
}

// clean removes passwords from an error. If err contains none, clean keeps its type, which the
// engine checks.
func (r *Redlock) clean(err error) error {
	err = r.inTime(err)
	if text := r.Hide(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// parseRedlock reads a URL. It connects to nothing.
func parseRedlock(u *url.URL) (*Redlock, error) {
	q, err := parseKnown(u, redlockParameters...)
	if err != nil {
		return nil, err
	}
	client, err := newRedisClient(u, q)
	if err != nil {
		return nil, err
	}
	r := &Redlock{RedisClient: client, Engine: redlock.Config{
		Prefix:        q.Get("prefix"),
		NoQuarantine:  q.only("quarantine", "off"),
		AllowEviction: q.only("eviction", "allow"),
		MaxTTL:        q.duration("max-ttl", ShortestTTL, "30s"),
		// A server that does not answer is detected after its timeout. One more second is enough
		// for the answers of a majority of the others.
		RetryTimeout: client.Option.Dialer.Timeout + time.Second,
	}}
	return r, cmp.Or(r.setNodes(u), q.err)
}

// setNodes reads the servers. Their addresses are also their names, and a server refuses clients
// whose list of names differs. setNodes refuses fewer than three servers, which would not survive
// the failure of one, and an even number, which survives no more failures than one server less.
func (r *Redlock) setNodes(u *url.URL) error {
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
	r.Engine.Nodes = nodes
	r.Option.SelectDB, err = database(strings.TrimPrefix(u.Path, "/"))
	return err
}
