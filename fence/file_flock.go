//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fence

import (
	"errors"
	"os"
	"syscall"
)

// tryLockFile takes the kernel lock if it is free.
func tryLockFile(file *os.File) (got bool, err error) {
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return false, nil
	}
	return err == nil, err
}
