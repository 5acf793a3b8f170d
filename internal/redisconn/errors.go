package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// ServerError is an error reply of the server. A [Conn] returns it, possibly wrapped, when the
// server refused a command. Any other error of a Conn means that the server was unreachable or did
// not answer.
type ServerError struct {
	Text string // one line, such as "NOPERM this user has no permissions ..."
}

func (e ServerError) Error() string { return e.Text }

// Code returns the kind of the error: the first word of the message, such as "READONLY". Servers
// before 7.0 wrap the errors inside a script, so Code unwraps them.
func (e ServerError) Code() string {
	text := e.Text
	if strings.HasPrefix(strings.TrimPrefix(text, "ERR "), "Error running script") {
		if i := strings.LastIndex(text, "@user_script: "); i >= 0 {
			_, text, _ = strings.Cut(text[i+len("@user_script: "):], ": ")
		}
	}
	if strings.Contains(text, "Protocol error: unauthenticated") {
		return "NOAUTH" // a long request before the login
	}
	code, _, _ := strings.Cut(strings.TrimPrefix(text, "-"), " ")
	return code
}

// Denied reports whether the server refuses this user or client, so that a retry does not help: the
// login, the protected mode, or a missing privilege.
func (e ServerError) Denied() bool {
	switch e.Code() {
	case "NOAUTH", "WRONGPASS", "NOPERM", "DENIED":
		return true
	}
	for _, words := range [...]string{
		"ACL failure in script", // 7.2 and later
		"The user executing the script can't",
		"AUTH <password> called without any password configured",
		"unknown command",       // removed or renamed
		"Unknown Redis command", // the same in a script
		"DB index is out of range",
	} {
		if strings.Contains(e.Text, words) {
			return true
		}
	}
	return false
}

// Refused returns the server's message if err is an error reply, and false if it is an error of the
// network or the client.
func Refused(err error) (string, bool) {
	e, ok := errors.AsType[ServerError](err)
	return e.Text, ok
}

// Denied reports whether err is a [ServerError] that refuses this user or client; see
// [ServerError.Denied].
func Denied(err error) bool {
	e, ok := errors.AsType[ServerError](err)
	return ok && e.Denied()
}

// Unreached adds the addresses of the servers that did not answer to err, on one line. It returns a
// server's error reply unchanged, and nil for nil.
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

// IsContextError reports whether err is the error of a context.
func IsContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
