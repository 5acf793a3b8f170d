package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Inspect looks at who may use the directory; see [driver.Inspector]. The TTL does
// not matter here. It makes no probe.
func (e *Engine) Inspect(context.Context, time.Duration) ([]driver.Finding, error) {
	if err := e.ready(false); err != nil {
		return nil, err
	}
	info, err := os.Stat(e.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return []driver.Finding{{Check: "directory", Severity: driver.Good, Observed: e.dir + " is made when it is first needed"}}, nil
	}
	if err != nil {
		return nil, e.unavailable(err)
	}
	return []driver.Finding{e.inspectDirectory(info)}, nil
}

// inspectDirectory says who may use the directory, and who may harm it.
func (e *Engine) inspectDirectory(info os.FileInfo) driver.Finding {
	f := driver.Finding{Check: "directory", Observed: fmt.Sprintf("%s, mode %04o", e.dir, info.Mode().Perm())}
	uid, _, known := ownerOf(info)
	switch {
	case info.Mode().Perm()&0o002 != 0:
		f.Severity = driver.Warning
		f.Impact = "every user may remove locks here, or put files in their way; links and files of strangers are refused"
		f.Fix = "share it with a group (?group=NAME) and take the right from the others: chmod o-w"
	case known && uid != os.Geteuid() && uid != 0 && e.perm.group == "":
		f.Severity = driver.Warning
		f.Observed += fmt.Sprintf(", of user %d", uid)
		f.Impact = "that user may remove the locks of this one"
		f.Fix = "share it with a group (?group=NAME), or use a directory of your own"
	case e.perm.group != "":
		f.Observed += ", shared with the group " + e.perm.group
	default:
		f.Observed += ", of this user alone: others who lock the same names elsewhere are not excluded"
	}
	return f
}
