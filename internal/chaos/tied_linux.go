package chaos

import "syscall"

// tied makes a worker end with the harness, however that ends, also if the worker is frozen. An
// interrupt typed at the terminal does not reach it.
func tied() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
