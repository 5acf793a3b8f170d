package redistest

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// tied starts cmd so that the kernel kills it when this process dies, however
// that happens. An interrupt typed at the terminal does not reach it. The kernel counts the death of the thread that forked, so all
// are forked by one thread that never ends before the process.
func tied(cmd *exec.Cmd) (untie func(), err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
	done := make(chan error)
	forks() <- func() { done <- cmd.Start() }
	return func() {}, <-done
}

// forks returns what the forking thread listens to.
var forks = sync.OnceValue(func() chan<- func() {
	c := make(chan func())
	go func() { // ends with the process
		runtime.LockOSThread()
		for f := range c {
			f()
		}
	}()
	return c
})
