//go:build unix

package engineurl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/memlock"
)

// DefaultDir returns the directory of the locks if there is no URL. Each user has a different one,
// so users do not exclude each other. env is os.Getenv or a substitute.
func DefaultDir(uid int, env func(string) string) (string, error) {
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

// breakWait is how long break waits for a holder to release before it kills the holder. It is
// longer than run takes by default to end its command, and elect to run --on-lose after that.
const breakWait = 20 * time.Second

// Directory is a parsed URL of files.
type Directory struct {
	Path   string
	config filelock.Config
}

// Open returns the engine of the directory. The first lock creates the directory.
func (d *Directory) Open(context.Context, *slog.Logger) (driver.Engine, func() error, error) {
	d.config.Poll, d.config.BreakWait = true, breakWait
	return filelock.New(d.Path, &d.config), nothingToClose, nil
}

// parseDirectory parses a URL.
func parseDirectory(u *url.URL) (*Directory, error) {
	switch {
	case u.Host != "" || u.User != nil: // file://path is a host named "path" to every parser
		return nil, fmt.Errorf("file://%s names a host; write file:///path (three slashes)", Redact(termtext.Word(u.Host)))
	case !strings.HasPrefix(u.Path, "/"):
		return nil, errors.New("the path must be absolute")
	case filepath.Clean(u.Path) == "/":
		return nil, errors.New("the URL names no directory")
	case u.Fragment != "":
		return nil, errors.New("the URL has a fragment; write # in a path as %23")
	}
	q, err := parseKnown(u, "network", "group")
	if err != nil {
		return nil, err
	}
	config := filelock.Config{AllowNetwork: q.only("network", "allow"), Group: q.Get("group")}
	return &Directory{filepath.Clean(u.Path), config}, q.err
}

// memory is a parsed URL of locks that exclude no other process.
type memory struct{}

// Open returns a new engine.
func (memory) Open(context.Context, *slog.Logger) (driver.Engine, func() error, error) {
	return memlock.New(nil), nothingToClose, nil
}

// parseMemory parses a URL.
func parseMemory(u *url.URL) (memory, error) {
	if u.Opaque != "" || u.Host != "" || u.User != nil || u.Path != "" {
		return memory{}, errors.New("write nothing after the colon")
	}
	_, err := parseKnown(u)
	return memory{}, err
}

// nothingToClose closes an engine without connections.
func nothingToClose() error { return nil }
