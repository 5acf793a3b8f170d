//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/memlock"
)

// opener makes the engine a URL names, and returns what closes it. Its error is
// ErrUnavailable if the URL is good but the engine is out of reach.
type opener func(context.Context, *url.URL) (driver.Engine, func() error, error)

// openers is every scheme there is. This table is the only place that knows the
// engines.
func openers() map[string]opener {
	return map[string]opener{
		"file":           openFile,
		"mem":            openMemory,
		"redis":          openRedis,
		"rediss":         openRedis,
		"redis+unix":     openRedis,
		"redis+sentinel": openRedis,
		"redis+cluster":  openRedis,
		"redlock":        openRedlock,
		"postgres":       openPostgres,
		"postgresql":     openPostgres,
	}
}

// urlBeginnings returns what URLs may begin with.
func urlBeginnings() []string {
	return []string{
		"file:///", "redis://", "rediss://", "redis+unix:///", "redis+sentinel://", "redis+cluster://",
		"redlock://", "postgres://", "mem:",
	}
}

// open returns the engine of the app's URL and what closes it. Its errors are
// one line, never show a password, and end the command with exit code 78, or 69
// if the engine is out of reach.
func (a *app) open(ctx context.Context) (driver.Engine, func() error, error) {
	engine, closeEngine, err := openURL(ctx, a.url)
	switch {
	case errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.Canceled):
		return nil, nil, err
	case err != nil:
		return nil, nil, &exitError{code: exitConfig, err: err}
	}
	return engine, closeEngine, nil
}

func openURL(ctx context.Context, raw string) (driver.Engine, func() error, error) {
	if raw == "" {
		dir, err := defaultDir(os.Geteuid(), os.Getenv)
		if err != nil {
			return nil, nil, err
		}
		return filelock.New(dir, &filelock.Config{Poll: true, BreakWait: breakWait}), nothingToClose, nil
	}
	u, err := parseURL(raw)
	if err != nil {
		// The parser's own words may show a piece of a password.
		return nil, nil, errors.New("the URL cannot be parsed; write special characters in it as %XX")
	}
	if u.Scheme == "" {
		if strings.ContainsAny(raw, "@?#") { // a password may be in it anywhere
			return nil, nil, errors.New("the URL has no scheme; write redis://host:port, say, or file:///path for a directory")
		}
		return nil, nil, fmt.Errorf("%s: the URL has no scheme; write file:///path for a directory", show(raw))
	}
	open, ok := openers()[u.Scheme]
	if !ok {
		return nil, nil, unknownScheme(u.Scheme)
	}
	return open(ctx, u)
}

// parseURL is url.Parse that also takes a list of hosts, which it leaves in Host
// as it is.
func parseURL(raw string) (*url.URL, error) {
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

// defaultDir is where locks live when no URL is given.
func defaultDir(uid int, env func(string) string) (string, error) {
	state, home := env("XDG_STATE_HOME"), env("HOME")
	switch {
	case uid == 0:
		return "/var/lib/fencelock", nil
	case filepath.IsAbs(state):
		return filepath.Join(state, "fencelock"), nil
	case filepath.IsAbs(home):
		return filepath.Join(home, ".local", "state", "fencelock"), nil
	}
	return "", errors.New("no home directory to keep locks in; set FENCELOCK_URL=file:///path")
}

// breakWait is how long break waits for a holder before it kills it: long enough
// for a run that gives its command the default time to end.
const breakWait = 10 * time.Second

func openFile(_ context.Context, u *url.URL) (driver.Engine, func() error, error) {
	switch {
	case u.Opaque != "" || (u.Host == "" && !strings.HasPrefix(u.Path, "/")):
		return nil, nil, errors.New("the path of a file URL must be absolute; write file:///path")
	case u.Host != "" || u.User != nil:
		return nil, nil, fmt.Errorf("file://%s names a host; write file:///path (three slashes)", redact(show(u.Host)))
	case filepath.Clean(u.Path) == "/":
		return nil, nil, errors.New("the file URL names no directory; write file:///path")
	case u.Fragment != "":
		return nil, nil, errors.New("the file URL has a fragment; write # in a path as %23")
	case strings.ContainsRune(u.Path, 0):
		return nil, nil, errors.New("the path of the file URL contains a NUL byte")
	}
	query, err := parameters(u, "network", "group")
	if err != nil {
		return nil, nil, err
	}
	if v := query.Get("network"); query.Has("network") && v != "allow" {
		return nil, nil, fmt.Errorf("network=%s: the only value is network=allow", show(v))
	}
	if query.Has("group") && query.Get("group") == "" {
		return nil, nil, errors.New("group= names no group")
	}
	return filelock.New(filepath.Clean(u.Path), &filelock.Config{
		AllowNetwork: query.Has("network"),
		Group:        query.Get("group"),
		Poll:         true,
		BreakWait:    breakWait,
	}), nothingToClose, nil
}

func openMemory(_ context.Context, u *url.URL) (driver.Engine, func() error, error) {
	if u.Opaque != "" || u.Host != "" || u.User != nil || u.Path != "" {
		return nil, nil, errors.New("mem: takes nothing after the colon")
	}
	if _, err := parameters(u); err != nil {
		return nil, nil, err
	}
	return memlock.New(nil), nothingToClose, nil
}

func nothingToClose() error { return nil }

// parameters returns the query of u and refuses any parameter that is not known
// or given twice.
func parameters(u *url.URL, known ...string) (url.Values, error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the parameters of the URL cannot be parsed; write special characters as %XX")
	}
	for name, values := range query {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%s: unknown parameter %s%s", u.Scheme, show(name), suggest(name, known, "; did you mean %s?"))
		}
		if len(values) > 1 {
			return nil, fmt.Errorf("%s: parameter %s is given %d times", u.Scheme, name, len(values))
		}
	}
	return query, nil
}
