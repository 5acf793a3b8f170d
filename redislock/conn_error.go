package redislock

import (
	"errors"
	"fmt"
	"strings"
)

// ServerError is an error reply, in the server's own words. A [Conn] returns it,
// bare or wrapped, for what the server refused; any other error of a Conn means
// that the server was not reached, or did not answer.
type ServerError struct {
	Text string // one line, such as "NOPERM this user has no permissions ..."
}

func (e ServerError) Error() string { return e.Text }

// serverError returns the server's words if err is an error reply rather than a
// failure of the network or of the client.
func serverError(err error) (string, bool) {
	e, ok := errors.AsType[ServerError](err)
	return e.Text, ok
}

// networkError says that a server was not reached, on one line. It keeps the
// identity of err.
func networkError(err error) error {
	if text := err.Error(); strings.Contains(text, "\n") {
		return &flatError{text: "redis connection: " + strings.Join(strings.Fields(text), " "), err: err}
	}
	return fmt.Errorf("redis connection: %w", err)
}

// flatError is an error of several lines, told on one.
type flatError struct {
	text string
	err  error
}

func (e *flatError) Error() string { return e.text }
func (e *flatError) Unwrap() error { return e.err }
