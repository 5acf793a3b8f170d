//go:build unix

package engineurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
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

// openFile opens the engine of a directory. The first lock creates the directory.
func openFile(_ context.Context, u *url.URL, _ options) (driver.Engine, func() error, error) {
	switch {
	case u.Host != "" || u.User != nil: // file://path is a host named "path" to every parser
		return nil, nil, fmt.Errorf("file://%s names a host; write file:///path (three slashes)", Redact(termtext.Word(u.Host)))
	case !strings.HasPrefix(u.Path, "/"):
		return nil, nil, errors.New("the path must be absolute")
	case filepath.Clean(u.Path) == "/":
		return nil, nil, errors.New("the URL names no directory")
	case u.Fragment != "":
		return nil, nil, errors.New("the URL has a fragment; write # in a path as %23")
	}
	q, err := parseKnown(u, "network", "group")
	if err != nil {
		return nil, nil, err
	}
	config := filelock.Config{AllowNetwork: q.only("network", "allow"), Group: q.Get("group"), Poll: true, BreakWait: breakWait}
	return filelock.New(filepath.Clean(u.Path), &config), nothingToClose, q.err
}

// openMemory opens an engine that excludes no other process.
func openMemory(_ context.Context, u *url.URL, _ options) (driver.Engine, func() error, error) {
	if u.Opaque != "" || u.Host != "" || u.User != nil || u.Path != "" {
		return nil, nil, errors.New("write nothing after the colon")
	}
	_, err := parseKnown(u)
	return memlock.New(nil), nothingToClose, err
}

// nothingToClose closes an engine without connections.
func nothingToClose() error { return nil }

// filePart returns a subdirectory.
func filePart(u *url.URL, prefix string) (*Part, error) {
	dir := filepath.Join(filepath.Clean(u.Path), prefix)
	if strings.ContainsAny(prefix, "/\x00") || strings.HasPrefix(prefix, ".") {
		return nil, fmt.Errorf("%q is not a name for a directory", prefix)
	}
	u.Path = dir
	return &Part{URL: u.String(), Local: true, Dead: DeadNothing, sweep: func(_ context.Context, remove bool) (n int, err error) {
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			return 0, nil
		}
		err = filepath.WalkDir(dir, func(string, os.DirEntry, error) error { n++; return nil })
		if remove {
			err = os.RemoveAll(dir)
		}
		return n, err
	}}, nil
}
