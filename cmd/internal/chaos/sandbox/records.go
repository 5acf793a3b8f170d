//go:build unix

package sandbox

import (
	"context"
	"errors"
	"net/url"
	"path"
	"time"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
)

// clusterRate bounds the writes of a store whose members agree on each: an acquisition has several.
// Of etcd, the whole cluster of Kubernetes depends on it.
const clusterRate = 50

// lockKeys begins the keys of the locks in records.
const lockKeys = "fencelock.lock/"

// ofStore returns the locks of a store whose names begin with a prefix.
func ofStore(u *url.URL, s *engineurl.Store, prefix string) *Sandbox {
	return &Sandbox{URL: u.String(), Names: prefix, Hosts: s.Addrs, Rate: clusterRate, Dead: DeadLeases, sweep: func(ctx context.Context, remove bool) (int, error) {
		records, closeStore, err := s.Records(ctx)
		if err != nil {
			return 0, err
		}
		defer closeStore()
		return sweepLocks(ctx, records, lockKeys+prefix, remove)
	}}
}

// ofDynamo returns the locks of a table whose names begin with a prefix.
func ofDynamo(u *url.URL, d *engineurl.Dynamo, prefix string) *Sandbox {
	return &Sandbox{URL: u.String(), Names: prefix, Hosts: hostOf(d.Config.Endpoint, "DynamoDB"), Rate: clusterRate, Dead: DeadLeases, sweep: func(ctx context.Context, remove bool) (int, error) {
		defer d.Transport.CloseIdleConnections()
		return sweepLocks(ctx, d.Records(), lockKeys+prefix, remove)
	}}
}

// sweepLocks counts the records whose keys have a prefix. If remove is true, it removes them by giving
// them a TTL, and waits until they have expired.
func sweepLocks(ctx context.Context, records driver.Records, prefix string, remove bool) (n int, err error) {
	for {
		list, err := records.List(ctx, prefix)
		if err != nil || !remove || len(list) == 0 {
			return len(list), err
		}
		for _, rec := range list {
			if len(rec.Value) == 0 { // it has a TTL
				continue
			}
			if _, err := records.Swap(ctx, rec.Key, nil, rec.Version, time.Second); err != nil && !errors.Is(err, driver.ErrConflict) {
				return len(list), err
			}
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return len(list), ctx.Err()
		}
	}
}

// sweepTimeout lets each request of a sweep of a bucket take longer than those for locks: a list may be long.
const sweepTimeout = 45 * time.Second

// ofBucket returns the objects whose names begin with the prefix of a URL and another one.
func ofBucket(u *url.URL, prefix string) (*Sandbox, error) {
	u.Path = path.Join("/", u.Path, prefix)
	target, err := engineurl.Parse(u.String())
	if err != nil {
		return nil, err
	}
	b := target.(*engineurl.Bucket)
	return &Sandbox{URL: u.String(), Hosts: hostOf(b.Endpoint, b.Service), Dead: DeadLeases, sweep: func(ctx context.Context, remove bool) (int, error) {
		defer b.Transport.CloseIdleConnections()
		b.Timeout = sweepTimeout
		return b.Records().Sweep(ctx, remove)
	}}, nil
}
