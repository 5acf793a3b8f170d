//go:build unix

package redistest

import (
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// tied starts cmd, and a shell beside it that reads from a pipe only this
// process can write to. Nobody ever writes: the read ends when this process
// dies, and then the shell kills the server. Untie it before ending the server,
// or its number may belong to somebody else by then.
func tied(cmd *exec.Cmd) (untie func(), err error) {
	apart := &syscall.SysProcAttr{Setpgid: true} // an interrupt typed at the terminal reaches neither
	cmd.SysProcAttr = apart
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	guard := exec.Command("/bin/sh", "-c", `read -r _; kill -9 "$0"`, strconv.Itoa(cmd.Process.Pid))
	guard.SysProcAttr = apart
	var pipe io.WriteCloser
	if pipe, err = guard.StdinPipe(); err == nil {
		err = guard.Start()
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	return func() {
		_ = guard.Process.Kill()
		_ = guard.Wait()
		_ = pipe.Close()
	}, nil
}
