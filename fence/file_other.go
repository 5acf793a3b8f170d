//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package fence

import (
	"errors"
	"os"
)

func tryLockFile(*os.File) (got bool, err error) { return false, errors.ErrUnsupported }
