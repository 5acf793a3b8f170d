package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// ServerError is an error reply, in the server's own words. A [Conn] returns it,
// bare or wrapped, for what the server refused; any other error of a Conn means
// that the server was not reached, or did not answer.
type ServerError struct {
	Text string // one line, such as "NOPERM this user has no permissions ..."
}

func (e ServerError) Error() string { return e.Text }

// Code returns the first word of the server's own, such as "READONLY": the kind of
// the error. Servers before 7.0 wrap what a script was refused.
func (e ServerError) Code() string {
	text := e.Text
	if strings.HasPrefix(strings.TrimPrefix(text, "ERR "), "Error running script") {
		if i := strings.LastIndex(text, "@user_script: "); i >= 0 {
			_, text, _ = strings.Cut(text[i+len("@user_script: "):], ": ")
		}
	}
	code, _, _ := strings.Cut(strings.TrimPrefix(text, "-"), " ")
	return code
}

// Denied reports whether the server refuses us as such, so that no other try will
// do better: the login, the protected mode, or a right.
func (e ServerError) Denied() bool {
	switch e.Code() {
	case "NOAUTH", "WRONGPASS", "NOPERM", "DENIED":
		return true
	}
	for _, words := range [...]string{
		"ACL failure in script", // 7.2 and later
		"The user executing the script can't",
		"AUTH <password> called without any password configured",
		"unknown command", // renamed away
		"DB index is out of range",
	} {
		if strings.Contains(e.Text, words) {
			return true
		}
	}
	return false
}

// Refused returns the server's words if err is an error reply rather than a failure of
// the network or of the client.
func Refused(err error) (string, bool) {
	e, ok := errors.AsType[ServerError](err)
	return e.Text, ok
}

// Denied reports whether err says that the server refuses us as such; see
// [ServerError.Denied].
func Denied(err error) bool {
	e, ok := errors.AsType[ServerError](err)
	return ok && e.Denied()
}

// Unreached returns err with the addresses of the servers that did not answer, on
// one line. The words of a server stay as they are, and nil stays nil.
func Unreached(err error, addrs ...string) error {
	if _, answered := Refused(err); err == nil || answered {
		return err
	}
	const most = 3
	if len(addrs) > most {
		addrs = append(slices.Clone(addrs[:most]), "...")
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = fmt.Errorf("no answer: %w", err)
	}
	return fmt.Errorf("redis at %s: %w", strings.Join(addrs, ","), driver.OneLine(err))
}

// IsContextError reports whether err says no more than that a context has ended.
func IsContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
