//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
}

// Records are records that may have to be created.
type Records interface {
	driver.Records
	Init(ctx context.Context) error
}

// An OpenStore connects to a store of records. It returns what closes the connections. Its errors are
// ErrUnavailable or ErrConfig.
type OpenStore func(s Store) (records Records, closeStore func(), err error)

// storeForms has the schemes of the stores that programs can add, and what their URLs look like.
var storeForms = map[string]string{
	"etcd": "etcd://[user:password@]host1,host2,...[/prefix]",
	"nats": "nats://[user:password@]host1,host2,...[/bucket]",
}

// storePorts are the ports of addresses that have none.
var storePorts = map[string]string{"etcd": "2379", "nats": "4222"}

// installAll is the hint for a store that this program has no client for.
const installAll = "go install github.com/fencelock/fencelock/cmd/fencelock/fencelock-all@latest, and use it in place of fencelock"

// AddStore makes Open accept the URLs of a store: etcd or nats. The clients of these stores are
// large, so the programs that need them add them. AddStore must be called before the other functions.
func AddStore(scheme string, open OpenStore) {
	schemes[scheme] = adapt(scheme, open)
	beginnings = append(beginnings, scheme+"://")
}

// adapt returns the scheme of a store.
func adapt(name string, open OpenStore) scheme {
	return scheme{form: storeForms[name], open: func(ctx context.Context, u *url.URL, dial dialer) (driver.Engine, func() error, error) {
		if dial != nil {
			return nil, nil, errors.New("connections through another program are not supported here")
		}
		s, err := parseStore(u)
		if err != nil {
			return nil, nil, err
		}
		hide := secrets{}
		hide.keep(s.Password)
		records, closeStore, err := open(s)
		if err != nil {
			return nil, nil, explain(err, hide)
		}
		engine := recordlock.New(records, &recordlock.Config{Name: u.Scheme})
		end := func() error { return closeBoth(engine.Close, closeStore) }
		if err := greet(ctx, records, hide); err != nil {
			return nil, nil, errors.Join(err, end())
		}
		return engine, end, nil
	}}
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

// greet makes a request, so that an error is reported before a request waits and retries. It creates
// what the records need, if that does not exist.
func greet(ctx context.Context, records Records, hide secrets) error {
	limited, cancel := context.WithTimeout(ctx, greetLimit)
	defer cancel()
	_, err := records.Get(limited, "fencelock")
	if errors.Is(err, driver.ErrConfig) {
		err = records.Init(limited)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return explain(err, hide)
}

// explain adds a hint to an error of a store.
func explain(err error, hide secrets) error {
	kind, hint := driver.ErrUnavailable, hintUnreachable
	if errors.Is(err, driver.ErrConfig) {
		kind, hint = driver.ErrConfig, "check the user, the password and the path in FENCELOCK_URL, and what the user may do"
	}
	text := strings.TrimPrefix(hide.hide(driver.OneLine(err).Error()), kind.Error()+": ")
	return &HintError{Err: fmt.Errorf("%w: %s", kind, text), Hint: hint}
}
