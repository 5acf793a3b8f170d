//go:build unix

package engineurl

import (
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redlock"
)

// ParseRedis returns the configurations of the client and the engine of a URL.
func ParseRedis(u *url.URL) (rueidis.ClientOption, redislock.Config, error) {
	r, err := parseRedis(u)
	if err != nil {
		return rueidis.ClientOption{}, redislock.Config{}, err
	}
	return r.Option, r.Engine, nil
}

// ParseRedlock returns the configurations of the clients and the engine of a URL.
func ParseRedlock(u *url.URL) (rueidis.ClientOption, redlock.Config, error) {
	r, err := parseRedlock(u)
	if err != nil {
		return rueidis.ClientOption{}, redlock.Config{}, err
	}
	return r.Option, r.Engine, nil
}

// ParsePostgres returns the configurations of the client and the engine of a URL, and the time
// limit of the first connection.
func ParsePostgres(u *url.URL) (*pgxpool.Config, pglock.Config, time.Duration, error) {
	p, err := parsePostgres(u)
	if err != nil {
		return nil, pglock.Config{}, 0, err
	}
	return p.Pool, p.engine, p.limit, nil
}

// ParseStore exports parseStore to the tests.
var ParseStore = parseStore

// Schemes returns every scheme in sorted order.
func Schemes() []string { return slices.Sorted(slices.Values(opened((*scheme).name))) }

// Hide removes one password from a text.
func Hide(secret, text string) string {
	var s secrets
	s.keep(secret)
	return s.Hide(text)
}
