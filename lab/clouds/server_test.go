//go:build unix

package clouds

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// An emulator is a process on a port, with its data in a directory.
type emulator struct {
	t       testing.TB
	name    string
	args    func(port, dir string) []string
	port    string
	dir     string
	cmd     *exec.Cmd
	stopped chan struct{} // closed when the process has ended
}

// programs are how the emulators are started.
var programs = map[string]func(port, dir string) []string{
	"azurite": func(port, dir string) []string {
		return []string{"azurite-blob", "--silent", "--skipApiVersionCheck", "--location", dir, "--blobPort", port}
	},
	"dynalite": func(port, dir string) []string {
		return []string{"dynalite", "--path", dir, "--port", port, "--createTableMs", "0"}
	},
	"fake-gcs-server": func(port, dir string) []string {
		return []string{"fake-gcs-server", "-scheme", "http", "-host", "127.0.0.1", "-port", port, "-backend", "filesystem", "-filesystem-root", dir, "-log-level", "error"}
	},
}

// start starts an emulator, which ends with the test.
func start(t testing.TB, name string) *emulator {
	t.Helper()
	dir, err := os.MkdirTemp("", "fencelock-clouds-")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	_ = l.Close()
	e := &emulator{t: t, name: name, args: programs[name], port: port, dir: dir}
	t.Cleanup(func() { e.stop(syscall.SIGKILL); _ = os.RemoveAll(dir) })
	e.run()
	return e
}

func (e *emulator) addr() string { return "127.0.0.1:" + e.port }

// run starts the process, and waits until it accepts connections.
func (e *emulator) run() {
	e.t.Helper()
	args := e.args(e.port, e.dir)
	e.cmd = exec.Command(filepath.Join(os.Getenv("FENCELOCK_CLOUDS"), args[0]), args[1:]...)
	if err := e.cmd.Start(); err != nil {
		e.t.Fatalf("%v: FENCELOCK_CLOUDS is the directory with azurite-blob, dynalite and fake-gcs-server", err)
	}
	stopped := make(chan struct{})
	e.stopped = stopped
	go func() { // ends with the process
		_ = e.cmd.Wait()
		close(stopped)
	}()
	for begun := time.Now(); ; {
		c, err := net.Dial("tcp", e.addr())
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Since(begun) > time.Minute {
			e.t.Fatal(fmt.Errorf("%s does not start: %w", args[0], err))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// end returns a signal after which the store still has every write that it has acknowledged. Azurite writes
// its index to the disk when it gets TERM.
func (e *emulator) end() syscall.Signal {
	if e.name == "azurite" {
		return syscall.SIGTERM
	}
	return syscall.SIGKILL
}

// signal sends a signal to the process.
func (e *emulator) signal(s syscall.Signal) { _ = e.cmd.Process.Signal(s) }

// stop ends the process.
func (e *emulator) stop(s syscall.Signal) {
	e.signal(syscall.SIGCONT)
	e.signal(s)
	<-e.stopped
}
