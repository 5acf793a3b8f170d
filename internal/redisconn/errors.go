package redisconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
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
		"DB index is out of range",
	} {
		if strings.Contains(e.Text, words) {
			return true
		}
	}
	return e.Unknown()
}

// Unknown reports whether the server lacks the command: a provider has removed or renamed it.
func (e ServerError) Unknown() bool {
	for _, words := range [...]string{
		"unknown command",
		"Unknown Redis command", // in a script
		"Unknown command",       // in a script on Valkey
		"unsupported command",   // of Envoy
	} {
		if strings.Contains(e.Text, words) {
			return true
		}
	}
	return false
}

// unnamed are the errors inside a script that do not say which command they are about.
var unnamed = [...]string{"Unknown Redis command", "Unknown command", "can't run this command"}

var (
	scriptLine = regexp.MustCompile(`user_script:(\d+)`)
	scriptCall = regexp.MustCompile(`call\('([A-Z]+)'`)
)

// Named returns err, the error of this call, with the command that the server refused inside the
// script, if the server's message has only the line.
func (c Call) Named(err error) error {
	e, ok := errors.AsType[ServerError](err)
	if !ok || !slices.ContainsFunc(unnamed[:], func(words string) bool { return strings.Contains(e.Text, words) }) {
		return err
	}
	at := scriptLine.FindStringSubmatch(e.Text)
	if at == nil {
		return err
	}
	lines := strings.Split(c.Script.Source(), "\n")
	n, _ := strconv.Atoi(at[1])
	// A script that handles an error raises it in the line after the call.
	for i := min(n, len(lines)) - 1; i >= max(n-2, 0); i-- {
		var commands []string
		for _, m := range scriptCall.FindAllStringSubmatch(lines[i], -1) {
			commands = append(commands, m[1])
		}
		if commands != nil {
			return ServerError{Text: strings.TrimSuffix(e.Text, ".") + ", command " + strings.Join(commands, " or ")}
		}
	}
	return err
}

// lastWords ends what is of interest in the message about a command that the server lacks. The
// arguments follow, the script's source among them.
const lastWords = ", with args beginning with"

// ErrorReply returns the error for an error reply of the server.
func ErrorReply(text string) ServerError {
	text, _, _ = strings.Cut(text, lastWords)
	return ServerError{Text: text}
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

// Lacks reports whether err is a [ServerError] of a server that lacks the command; see
// [ServerError.Unknown].
func Lacks(err error) bool {
	e, ok := errors.AsType[ServerError](err)
	return ok && e.Unknown()
}

// Unreached adds the addresses of the servers that did not answer to err, on one line. It returns a
// server's error reply unchanged, and nil for nil.
func Unreached(err error, addrs ...string) error {
	if _, answered := Refused(err); err == nil || answered {
		return err
	}
	const limit = 3
	if len(addrs) > limit {
		addrs = append(slices.Clone(addrs[:limit]), "...")
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = fmt.Errorf("no answer: %w", err)
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the server or a proxy closed the connection (twemproxy does so at a command that it does not pass on): %w", err)
	}
	return fmt.Errorf("redis at %s: %w", strings.Join(addrs, ","), driver.OneLine(err))
}

// IsContextError reports whether err is the error of a context.
func IsContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
