package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/inspect"
)

// Inspect checks the directory; see [driver.Inspector]. It uses probe names and removes them, and
// creates the directory if there is none.
func (e *Engine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	if err := e.dir.ready(ctx, false); err != nil {
		return nil, err
	}
	t := inspect.Trial{Engine: e, Name: inspect.NewName(), TTL: ttl,
		Denied: func(err error) bool { return errors.Is(err, fs.ErrPermission) },
		Grant:  "allow this user to write there, or choose a directory that this user may write to"}
	findings, ended := t.Run(ctx)
	for _, name := range t.Names() {
		e.forget(name)
	}
	if ended != nil {
		return nil, e.dir.unavailable(ended)
	}
	info, err := lookUp(e.dir.path)
	if err != nil { // the directory could not be created, as the findings say
		return findings, nil
	}
	return append(findings, e.dir.inspect(info)), nil
}

// forget removes all files of a probe name, which no other process knows.
func (e *Engine) forget(name string) {
	if g, _ := e.records.shard(name); g.open() == nil {
		_ = g.remove(recordFile(name))
		g.close()
	}
	if g := e.dir.nameLock(name); g.open() == nil {
		g.unmark()
		_ = g.up.removeDir(g.base)
		g.close()
	}
}

// inspect checks who may use the directory and who may damage it.
func (d *directory) inspect(info os.FileInfo) driver.Finding {
	f := driver.Finding{Check: "directory", Observed: fmt.Sprintf("%s, mode %04o", d.path, info.Mode().Perm())}
	uid, _, known := ownerOf(info)
	switch {
	case info.Mode().Perm()&0o002 != 0:
		f.Severity = driver.Warning
		f.Impact = "every user may remove locks here, or create files that block them; the engine refuses links and files of other users"
		f.Fix = "share it with a group (?group=NAME), and remove the permission of others: chmod o-w"
	case known && uid != os.Geteuid() && uid != 0 && d.perm.group == "":
		f.Severity = driver.Warning
		f.Observed += fmt.Sprintf(", of user %d", uid)
		f.Impact = "that user may remove this user's locks"
		f.Fix = "share it with a group (?group=NAME), or use a directory of your own"
	case d.perm.group != "":
		f.Observed += ", shared with the group " + d.perm.group
	default:
		f.Observed += ", used by this user alone: processes that lock the same names in other directories are not excluded"
	}
	return f
}
