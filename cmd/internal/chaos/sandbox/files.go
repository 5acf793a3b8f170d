//go:build unix

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
)

// ofDirectory returns a subdirectory.
func ofDirectory(u *url.URL, d *engineurl.Directory, prefix string) (*Sandbox, error) {
	if strings.ContainsAny(prefix, "/\x00") || strings.HasPrefix(prefix, ".") {
		return nil, fmt.Errorf("%q is not a name for a directory", prefix)
	}
	dir := filepath.Join(d.Path, prefix)
	u.Path = dir
	return &Sandbox{URL: u.String(), Local: true, Dead: DeadNothing, sweep: func(_ context.Context, remove bool) (n int, err error) {
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
