//go:build unix

package engineurl

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
)

// shortestTTL is the shortest max-ttl that has a sense: the command refuses to run
// anything under a shorter lease.
const (
	shortestTTL = time.Second
	ttlExpected = "a time of at least 1s, such as 30s"
)

// flags are those of the command, which people write into a URL, where nothing reads them.
var flags = []string{
	"burst", "close", "command", "conflict-exit-code", "count", "force", "json", "kill-after", "limit", "max-output",
	"min-hold", "nonblock", "note", "on-lost", "pass-url", "payload", "print", "quiet-if-busy", "rate", "reason",
	"restart", "retention", "retry-failed", "scan", "shared", "signal", "tick", "ttl", "url", "verbose", "wait",
	"weight", "yes",
}

// misplaced is the error of a parameter that is a flag, nil if it is none.
func misplaced(name string) error {
	if !slices.Contains(flags, name) {
		return nil
	}
	return fmt.Errorf("%s is a flag and no parameter of a URL; leave it out, and write --%s on the command line", name, name)
}

// parameters returns the query of u and refuses any parameter that is not known
// or given twice.
func parameters(u *url.URL, known ...string) (url.Values, error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the parameters of the URL cannot be parsed; write special characters as %XX")
	}
	for name, values := range query {
		if !slices.Contains(known, name) {
			if err := misplaced(name); err != nil {
				return nil, fmt.Errorf("%s: %w", u.Scheme, err)
			}
			return nil, fmt.Errorf("%s: unknown parameter %s%s", u.Scheme, termtext.Word(name), termtext.Suggest(name, known, "; did you mean %s?"))
		}
		if len(values) > 1 {
			return nil, fmt.Errorf("%s: parameter %s is given %d times", u.Scheme, name, len(values))
		}
	}
	return query, nil
}

// word reads a parameter that has one value only, and reports whether it is
// given.
func word(query url.Values, name, only string) (bool, error) {
	if !query.Has(name) {
		return false, nil
	}
	if v := query.Get(name); v != only {
		return false, fmt.Errorf("%s=%s: the only value is %s=%s", name, termtext.Word(v), name, only)
	}
	return true, nil
}

// span reads a time of at least a shortest one, 0 if it is not given. expected is what
// to write in the place of one that is wrong.
func span(query url.Values, name string, shortest time.Duration, expected string) (time.Duration, error) {
	if !query.Has(name) {
		return 0, nil
	}
	d, err := time.ParseDuration(query.Get(name))
	if err != nil || d < shortest {
		return 0, fmt.Errorf("%s=%s: write %s", name, termtext.Word(query.Get(name)), expected)
	}
	return d, nil
}

// count reads a number of at least least, 0 if it is not given. expected is what to write
// in the place of one that is wrong.
func count(query url.Values, name string, least int, expected string) (int, error) {
	if !query.Has(name) {
		return 0, nil
	}
	n, err := strconv.Atoi(query.Get(name))
	if err != nil || n < least {
		return 0, fmt.Errorf("%s=%s: write %s", name, termtext.Word(query.Get(name)), expected)
	}
	return n, nil
}
