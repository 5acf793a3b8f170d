//go:build unix

package chaostest

import "syscall"

const stop, resume = syscall.SIGSTOP, syscall.SIGCONT
