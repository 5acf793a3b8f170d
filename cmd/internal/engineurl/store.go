//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
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
	Dial           Dialer        // connects to an address; nil if the client does that itself

	scheme string
	open   OpenStore
}

// A Dialer connects to an address, such as "host:6379".
type Dialer = func(ctx context.Context, addr string) (net.Conn, error)

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
	schemeOf(scheme).parse = parser(func(u *url.URL) (*Store, error) {
		s, err := parseStore(u)
		s.scheme, s.open = scheme, open
		return &s, err
	})
}

// Open connects, makes a request and returns the engine.
func (s *Store) Open(ctx context.Context, _ *slog.Logger) (driver.Engine, func() error, error) {
	records, closeStore, err := s.Records(ctx)
	if err != nil {
		return nil, nil, err
	}
	engine := recordlock.New(records, &recordlock.Config{Name: s.scheme})
	return engine, func() error { return closeBoth(engine.Close, closeStore) }, nil
}

// Records connects and makes a request, so that an error is reported before a request waits and
// retries. It creates what the records need, if that does not exist.
func (s *Store) Records(ctx context.Context) (records Records, closeStore func(), err error) {
	hide := secrets{}
	hide.keep(s.Password)
	explained := func(err error) error {
		return explain(err, hide, strings.Join(s.Addrs, ",")+": ", "check the user, the password and the path in FENCELOCK_URL, and what the user may do")
	}
	records, closeStore, err = s.open(*s)
	if err != nil {
		return nil, nil, explained(err)
	}
	missing := func(err error) bool { return errors.Is(err, driver.ErrConfig) }
	if err := firstRequest(ctx, greetLimit, records, missing, explained); err != nil {
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
