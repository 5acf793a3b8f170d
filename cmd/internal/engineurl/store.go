//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/recordlock"
)

// Store is a parsed URL of a store of records.
type Store struct {
	Addrs          []string // host:port
	User, Password string
	Path           string        // without slashes around it; empty if there is none
	TLS            *tls.Config   // nil without TLS
	Timeout        time.Duration // of a request; 0 means the default of the store
	Replicas       int           // 0 means 1
	Credentials    string        // a file; empty if there is none
	Dial           dialer        // connects to an address; nil if the client does that itself
}

// Records are records that may have to be created.
type Records interface {
	driver.Records
	Init(ctx context.Context) error
}

// An OpenStore connects to a store of records. It returns what closes the connections. Its errors are
// ErrUnavailable or ErrConfig.
type OpenStore func(s Store) (records Records, closeStore func(), err error)

// storePorts are the ports of addresses that have none.
var storePorts = map[string]string{"etcd": "2379", "nats": "4222"}

// InstallAll is the hint for a store that this program has no client for.
const InstallAll = "go install github.com/fencelock/fencelock/cmd/fencelock-all@latest, and use it in place of fencelock"

// AddStore makes Open accept the URLs of a store: etcd or nats. The clients of these stores are
// large, so the programs that need them add them. AddStore must be called before the other functions.
func AddStore(scheme string, open OpenStore) {
	added := schemeOf(scheme)
	added.part = func(u *url.URL, prefix string) (*Part, error) { return storePart(u, open, prefix) }
	added.open = func(ctx context.Context, u *url.URL, o options) (driver.Engine, func() error, error) {
		s, err := parseStore(u)
		if err != nil {
			return nil, nil, err
		}
		s.Dial = o.dial
		records, closeStore, err := s.prepare(ctx, open)
		if err != nil {
			return nil, nil, err
		}
		engine := recordlock.New(records, &recordlock.Config{Name: u.Scheme})
		return engine, func() error { return closeBoth(engine.Close, closeStore) }, nil
	}
}

// prepare connects and makes a request, so that an error is reported before a request waits and
// retries. It creates what the records need, if that does not exist.
func (s Store) prepare(ctx context.Context, open OpenStore) (records Records, closeStore func(), err error) {
	hide := secrets{}
	hide.keep(s.Password)
	records, closeStore, err = open(s)
	if err != nil {
		return nil, nil, s.explain(err, hide)
	}
	missing := func(err error) bool { return errors.Is(err, driver.ErrConfig) }
	if err := firstRequest(ctx, greetLimit, records, missing, func(err error) error { return s.explain(err, hide) }); err != nil {
		closeStore()
		return nil, nil, err
	}
	return records, closeStore, nil
}

// parseStore parses a URL. It does not connect.
func parseStore(u *url.URL) (s Store, err error) {
	if u.Opaque != "" || u.Fragment != "" || strings.Contains(u.Path, "@") {
		return s, errors.New("the URL cannot be understood")
	}
	known := []string{"timeout", "tls", "ca", "cert", "key"}
	if u.Scheme == "nats" {
		known = append(known, "replicas", "creds")
	}
	q, err := parseKnown(u, known...)
	if err != nil {
		return s, err
	}
	if s.Addrs, err = addresses(u.Host, storePorts[u.Scheme]); err != nil {
		return s, err
	}
	s.User = u.User.Username()
	s.Password, _ = u.User.Password()
	s.Path = strings.Trim(u.Path, "/")
	s.Timeout, s.Replicas, s.Credentials = q.duration("timeout", 100*time.Millisecond, "2s"), q.number("replicas", 1), q.Get("creds")
	s.TLS, err = parseTLS(q, q.only("tls", "on"))
	return s, cmp.Or(err, q.err)
}

// greetLimit is how long the first request may take.
const greetLimit = 4 * time.Second

// firstRequest makes the first request to records, so that an error is reported before a request waits and
// retries. If missing says so of its result, it creates what the records need. It returns what explained
// makes of an error, unless ctx has ended.
func firstRequest(ctx context.Context, limit time.Duration, records Records, missing func(error) bool, explained func(error) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := records.Get(limited, "fencelock")
	if missing(err) {
		err = records.Init(limited)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return explained(err)
}

// explain adds the servers and a hint to an error of a store.
func (s Store) explain(err error, hide secrets) error {
	return explain(err, hide, strings.Join(s.Addrs, ",")+": ", "check the user, the password and the path in FENCELOCK_URL, and what the user may do")
}

// lockKeys begins the keys of the locks in records.
const lockKeys = "fencelock.lock/"

// storePart returns the locks of a store whose names begin with a prefix.
func storePart(u *url.URL, open OpenStore, prefix string) (*Part, error) {
	s, err := parseStore(u)
	if err != nil {
		return nil, err
	}
	return &Part{URL: u.String(), Names: prefix, Hosts: s.Addrs, Rate: clusterRate, Dead: DeadLeases, sweep: func(ctx context.Context, remove bool) (int, error) {
		records, closeStore, err := s.prepare(ctx, open)
		if err != nil {
			return 0, err
		}
		defer closeStore()
		return sweepLocks(ctx, records, lockKeys+prefix, remove)
	}}, nil
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
