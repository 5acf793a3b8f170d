//go:build unix

package engineurl

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/cmd/internal/termtext"
)

// ShortestTTL is the shortest TTL and max-ttl that the command accepts: a busy machine cannot stop a command
// in less.
const ShortestTTL = time.Second

// query reads the parameters of a URL. Its methods return zero for a parameter that is not given.
// They report a wrong value in err, which keeps the first error.
type query struct {
	url.Values
	err error
}

// parseQuery reads the parameters of u. It refuses a parameter that is given twice.
func parseQuery(u *url.URL) (*query, error) {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the parameters of the URL cannot be parsed; write special characters as %XX")
	}
	for name, given := range values {
		if len(given) > 1 {
			return nil, fmt.Errorf("parameter %s is given %d times", termtext.Word(name), len(given))
		}
	}
	return &query{Values: values}, nil
}

// parseKnown is parseQuery, and also refuses unknown parameters and empty values. An empty value comes
// from a shell variable that is not set, and the default could be other locks than those of the rest.
func parseKnown(u *url.URL, known ...string) (*query, error) {
	q, err := parseQuery(u)
	if err != nil {
		return nil, err
	}
	for name := range q.Values {
		if !slices.Contains(known, name) {
			err := fmt.Errorf("%s: unknown parameter %s%s", u.Scheme, termtext.Word(name), termtext.Suggest(name, known, "; did you mean %s?"))
			return nil, &HintError{Err: err, Hint: "one of these parameters: " + strings.Join(known, ", ")}
		}
		if q.Get(name) == "" {
			return nil, fmt.Errorf("parameter %s has no value; write one, or leave it out", name)
		}
	}
	return q, nil
}

// fail sets err to a parameter with a wrong value.
func (q *query) fail(name, expected string) {
	if q.err == nil {
		q.err = fmt.Errorf("%s=%s: %s", name, termtext.Word(q.Get(name)), expected)
	}
}

// only reports whether a parameter that has one possible value is given.
func (q *query) only(name, value string) bool {
	if q.Has(name) && q.Get(name) != value {
		q.fail(name, "the only value is "+name+"="+value)
	}
	return q.Has(name)
}

// duration reads a duration of at least shortest.
func (q *query) duration(name string, shortest time.Duration, example string) time.Duration {
	d, err := time.ParseDuration(q.Get(name))
	if q.Has(name) && (err != nil || d < shortest) {
		q.fail(name, fmt.Sprintf("write a duration of at least %v, such as %s", shortest, example))
	}
	return d
}

// number reads a whole number of at least least.
func (q *query) number(name string, least int) int {
	n, err := strconv.Atoi(q.Get(name))
	if q.Has(name) && (err != nil || n < least) {
		q.fail(name, fmt.Sprintf("write a whole number of at least %d", least))
	}
	return n
}
