//go:build unix && !linux

package chaos

import "syscall"

// tied keeps an interrupt that is typed at the terminal from a worker. The worker ends with its
// input, which ends with the harness.
func tied() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
