//go:build unix

package engineurl

import (
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redlock"
)

// ParseRedis returns what the client and the engine of a URL are told.
func ParseRedis(u *url.URL) (rueidis.ClientOption, redislock.Config, error) {
	r, err := parseRedis(u)
	if err != nil {
		return rueidis.ClientOption{}, redislock.Config{}, err
	}
	return r.option, r.engine, nil
}

// ParseRedlock returns what the clients and the engine of a URL are told.
func ParseRedlock(u *url.URL) (rueidis.ClientOption, redlock.Config, error) {
	r, err := parseRedlock(u)
	if err != nil {
		return rueidis.ClientOption{}, redlock.Config{}, err
	}
	return r.option, r.engine, nil
}

// ParsePostgres returns what the client and the engine of a URL are told, and how long
// the first connection may take.
func ParsePostgres(u *url.URL) (*pgxpool.Config, pglock.Config, time.Duration, error) {
	p, err := parsePostgres(u)
	if err != nil {
		return nil, pglock.Config{}, 0, err
	}
	return p.pool, p.engine, p.limit, nil
}

// ParseURL is parseURL.
var ParseURL = parseURL

// Schemes returns every scheme there is.
func Schemes() []string { return slices.Sorted(maps.Keys(schemes)) }
