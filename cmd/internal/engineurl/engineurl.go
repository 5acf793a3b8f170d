//go:build unix

// Package engineurl opens the engine of a URL, as given by --url and FENCELOCK_URL. The file schemes.go
// has the forms of URLs; the page of each engine has their parameters, which set fields of its Config
// and of its client.
//
// A parameter that is unknown, given twice or invalid is refused: a misspelt one would have no
// effect.
//
// URLs hold passwords, and parsers and clients repeat them in errors. So this package writes the
// texts of errors itself, or removes passwords from them.
package engineurl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/pglock"
)

// A scheme is all that the command knows of one kind of URL. What lists engines is derived from schemes.
type scheme struct {
	form string // what its URLs look like; it begins with the name and a colon
	// parse reads a URL, and connects to nothing. An error is a *HintError, or means that the URL does
	// not have the form. It is nil if this program has no client for the engine.
	parse func(*url.URL) (Target, error)
}

// A Target is a parsed URL. Its type is that of the engine, such as *[Redis], and has what a program
// needs that does more than to lock.
type Target interface {
	// Open is the function [Open] for this URL.
	Open(ctx context.Context, log *slog.Logger) (engine driver.Engine, closeEngine func() error, err error)
}

// parser returns the function of a scheme for one that returns a type of its own.
func parser[T Target](parse func(*url.URL) (T, error)) func(*url.URL) (Target, error) {
	return func(u *url.URL) (Target, error) { return parse(u) }
}

// name is what a URL has before its first colon.
func (s *scheme) name() string {
	name, _, _ := strings.Cut(s.form, ":")
	return name
}

// beginning is what every URL of the scheme starts with.
func (s *scheme) beginning() string {
	rest := strings.TrimPrefix(s.form, s.name()+":")
	return s.name() + ":" + rest[:len(rest)-len(strings.TrimLeft(rest, "/"))]
}

// explain names the scheme in the error of a URL, and adds its form as a hint, unless the error has one.
func (s *scheme) explain(err error) error {
	if _, explained := errors.AsType[*HintError](err); explained {
		return err
	}
	return &HintError{Err: fmt.Errorf("%s: %w", s.name(), err), Hint: s.form + "; write special characters of a password as %XX"}
}

// schemeOf returns the scheme with a name, or nil.
func schemeOf(name string) *scheme {
	for i := range schemes {
		if schemes[i].name() == name {
			return &schemes[i]
		}
	}
	return nil
}

// opened returns what a function makes of each scheme that this program has a client for.
func opened(text func(*scheme) string) (all []string) {
	for i := range schemes {
		if schemes[i].parse != nil {
			all = append(all, text(&schemes[i]))
		}
	}
	return all
}

// Beginnings returns what URLs may start with, for completion.
func Beginnings() []string { return opened((*scheme).beginning) }

// SQL returns what an administrator may run in the database of a URL before the first lock. It returns
// false if the engine of the URL has no such thing.
func SQL(raw string) (string, bool) {
	if name, _, _ := strings.Cut(raw, ":"); name != "postgres" && name != "postgresql" {
		return "", false
	}
	return pglock.Schema(), true
}

// Open opens the engine of a URL, and returns a function that closes it within half a second. An
// empty URL means [DefaultDir]. Open connects to a single Redis, PostgreSQL, MySQL or object store,
// for some seconds at most, so that errors are found early. It does not connect to the servers of
// Redlock, since some of them may be down.
//
// An error is a single line without passwords. It is ErrUnavailable if the server is unreachable,
// ErrConfig if the server refuses us, and the error of ctx if ctx has ended. Any other error means
// that the URL is wrong. A [HintError] says what to do.
//
// The engine logs to log, if that is not nil.
func Open(ctx context.Context, raw string, log *slog.Logger) (engine driver.Engine, closeEngine func() error, err error) {
	target, err := Parse(raw)
	if err != nil {
		return nil, nil, err
	}
	return target.Open(ctx, log)
}

// Parse reads a URL as [Open] does. It connects to nothing.
func Parse(raw string) (Target, error) {
	given := raw
	raw = strings.TrimSpace(raw) // a secret from a file often ends with a newline
	if given != "" && raw == "" {
		return nil, errors.New("the URL is blank; unset it for locks in files, or write redis://host:port, say")
	}
	if raw == "" {
		dir, err := DefaultDir(os.Geteuid(), os.Getenv)
		return &Directory{Path: dir}, err
	}
	if strings.HasPrefix(raw, `"`) || strings.HasPrefix(raw, "'") {
		return nil, errors.New("the URL begins with a quotation mark; remove it, which docker --env-file, for example, passes on")
	}
	u, err := ParseURL(raw)
	if err != nil {
		// The error of the parser may contain a piece of a password.
		return nil, errors.New("the URL cannot be parsed; write special characters in it as %XX")
	}
	if u.Scheme == "" {
		if strings.ContainsAny(raw, "@?#") { // it may contain a password
			return nil, errors.New("the URL has no scheme; write redis://host:port, say, or file:///path for a directory")
		}
		return nil, fmt.Errorf("%s: the URL has no scheme; write file:///path for a directory", termtext.Word(raw))
	}
	s := schemeOf(u.Scheme)
	switch port, isPort := strings.CutPrefix(raw, u.Scheme+":"); {
	case s == nil && isPort && digits(port):
		return nil, fmt.Errorf("%s: the URL has no scheme; write redis://%[1]s or postgres://%[1]s", termtext.Word(raw))
	case s == nil:
		known := opened((*scheme).name)
		slices.Sort(known)
		return nil, fmt.Errorf("%s: unknown scheme%s (known: %s)",
			termtext.Word(u.Scheme), termtext.Suggest(u.Scheme, known, "; did you mean %s?"), strings.Join(known, ", "))
	case s.parse == nil:
		return nil, &HintError{Err: fmt.Errorf("%s: this program has no client for it, fencelock-all has", u.Scheme), Hint: InstallAll}
	}
	target, err := s.parse(u)
	if err != nil {
		return nil, s.explain(err)
	}
	return target, nil
}

// ParseURL is url.Parse, and also accepts a list of hosts, which it stores in Host unchanged.
// url.Parse refuses such a list, since it takes the text after a colon for a port.
func ParseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	scheme, rest, ok := strings.Cut(raw, "://")
	if err == nil || !ok {
		return u, err
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	start := strings.LastIndex(rest[:end], "@") + 1
	hosts := rest[start:end]
	if !strings.Contains(hosts, ",") {
		return nil, err
	}
	if u, err = url.Parse(scheme + "://" + rest[:start] + "hosts" + rest[end:]); err == nil {
		u.Host = hosts
	}
	return u, err
}

// digits reports whether s begins with digits, as the rest of host:port/path does.
func digits(s string) bool {
	s, _, _ = strings.Cut(s, "/")
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// closeLimit is how long the command waits for connections to close.
const closeLimit = 500 * time.Millisecond

// closeBoth closes an engine and its client. Both wait for requests in progress, and a silent
// server must not delay the end of the program, so closeBoth waits for closeLimit at most.
func closeBoth(closeEngine func() error, closeClient func()) error {
	closed := make(chan error, 1)
	go func() { // ends after the timeouts of the client, or with the process
		err := closeEngine()
		closeClient()
		closed <- err
	}()
	select {
	case err := <-closed:
		return err
	case <-time.After(closeLimit):
		return nil
	}
}
