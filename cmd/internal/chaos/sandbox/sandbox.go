//go:build unix

// Package sandbox gives a test a part of the locks of a URL that nothing else uses: all keys, names or
// objects with a prefix, a table, or a subdirectory. It counts and deletes what the test has left there,
// and connects to servers through the proxies of the test.
package sandbox

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
)

// A Sandbox is a part of the locks of a URL. Count must be called before it is used.
type Sandbox struct {
	URL   string   // of the sandbox; it may hold a password
	New   bool     // its servers have to be declared new, since nothing is known about them under the prefix
	Names string   // the prefix of names, where they make the sandbox
	Local bool     // the engine makes no connections over a network
	Hosts []string // of the servers, or those of its Sentinels
	Rate  int      // acquires per second that a server can bear which others use; 0 if it is not special
	Plain bool     // requests are those of Redis, without TLS
	Dead  Dead     // what a dead waiter costs

	// sweep counts the keys, rows, objects or files of the sandbox, and deletes them if remove is true.
	sweep func(ctx context.Context, remove bool) (int, error)
}

// Dead is what a process costs the others if it dies while it waits for a lock.
type Dead int

// The costs.
const (
	DeadSeconds Dead = iota // two seconds
	DeadInTurn              // two seconds for each such process, one after the other
	DeadLeases              // the time of a place in a queue of records
	DeadNothing
)

// Count returns how many keys, rows, objects or files the sandbox has.
func (s *Sandbox) Count(ctx context.Context) (int, error) { return s.sweep(ctx, false) }

// Clear deletes all that the sandbox has. It returns how much of that is left.
func (s *Sandbox) Clear(ctx context.Context) (left int, err error) {
	if _, err := s.sweep(ctx, true); err != nil {
		return 0, err
	}
	return s.Count(ctx)
}

// Of returns the sandbox in the locks of a URL that a prefix names. It connects to nothing.
func Of(raw, prefix string) (*Sandbox, error) {
	target, err := engineurl.Parse(raw)
	if err != nil {
		return nil, err
	}
	u, err := engineurl.ParseURL(strings.TrimSpace(raw))
	if err != nil {
		return nil, err
	}
	switch t := target.(type) {
	case *engineurl.Directory:
		return ofDirectory(u, t, prefix)
	case *engineurl.Redis:
		return ofRedis(u, t, prefix), nil
	case *engineurl.Redlock:
		return ofRedlock(u, t, prefix), nil
	case *engineurl.Postgres:
		return ofPostgres(u, t, prefix), nil
	case *engineurl.Rows:
		return ofRows(u, t, prefix)
	case *engineurl.MySQL:
		return ofMySQL(u, t, prefix)
	case *engineurl.Kubernetes:
		return ofKubernetes(u, t, prefix), nil
	case *engineurl.Bucket:
		return ofBucket(u, prefix)
	case *engineurl.Dynamo:
		return ofDynamo(u, t, prefix), nil
	case *engineurl.Store:
		return ofStore(u, t, prefix), nil
	}
	return nil, fmt.Errorf("%s has no servers that several processes share", u.Scheme)
}

// Open is [engineurl.Open] with connections made by dial, unless that is nil, and without a log. Unix
// sockets have no address and are not affected.
func Open(ctx context.Context, raw string, dial engineurl.Dialer) (engine driver.Engine, closeEngine func() error, err error) {
	target, err := engineurl.Parse(raw)
	if err != nil {
		return nil, nil, err
	}
	if dial != nil {
		through(target, dial)
	}
	return target.Open(ctx, nil)
}

// hostOf returns the host of an endpoint; without one, the name of the service.
func hostOf(endpoint, service string) []string {
	if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
		return []string{u.Hostname()}
	}
	return []string{service}
}
