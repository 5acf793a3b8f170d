package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// session is an interactive shell on a terminal of its own.
type session struct {
	t      *testing.T
	master *os.File
	locks  string

	mu  sync.Mutex // guards out
	out bytes.Buffer
}

func newSession(t *testing.T) *session {
	dir, err := os.MkdirTemp("", "fencelock")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	shell := exec.Command("sh", "-i")
	shell.Env = append(os.Environ(), "ENV=", "PS1=$ ", "TERM=dumb", "FENCELOCK_URL=file://"+filepath.Join(dir, "locks"))
	return startSession(t, shell, filepath.Join(dir, "locks"))
}

// startSession starts a shell on a new terminal.
func startSession(t *testing.T, shell *exec.Cmd, locks string) *session {
	master, slave := openPty(t)
	s := &session{t: t, master: master, locks: locks}
	shell.Stdin, shell.Stdout, shell.Stderr = slave, slave, slave
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, shell.Start())
	slave.Close()
	go s.read() // ends when the shell has ended
	t.Cleanup(func() {
		s.master.Close() // hangs up
		shell.Wait()
	})
	return s
}

// openPty returns the two ends of a new terminal. The slave may become the
// controlling terminal of a child.
func openPty(t *testing.T) (master, slave *os.File) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	must(t, err)
	must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(t, err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	must(t, unix.SetNonblock(fd, true)) // so that Close ends a Read
	return os.NewFile(uintptr(fd), "/dev/ptmx"), slave
}

func (s *session) read() {
	buf := make([]byte, 4096)
	for {
		n, err := s.master.Read(buf)
		s.mu.Lock()
		s.out.Write(buf[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// enter types text.
func (s *session) enter(text string) {
	s.t.Helper()
	_, err := s.master.WriteString(text)
	must(s.t, err)
}

// expect waits for output that matches pattern. It discards the output up to the end of the match,
// and returns the match.
func (s *session) expect(pattern string) string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(scriptPatience); ; time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		if at := re.FindIndex(s.out.Bytes()); at != nil {
			text := string(s.out.Next(at[1]))
			s.mu.Unlock()
			return text
		}
		text := s.out.String()
		s.mu.Unlock()
		if time.Now().After(end) {
			s.t.Fatalf("no %q in\n%s", pattern, text)
		}
	}
}

// The patterns below contain a value that the shell computes, so that the echo of the typed line
// does not match.

func TestRunTerminal(t *testing.T) {
	t.Parallel()
	t.Run("interrupt", func(t *testing.T) {
		t.Parallel()
		s := newSession(t)
		s.enter(`fencelock run x -- sh -c 'trap "echo int-$((1+1)); exit 7" INT; echo up-$((1+1)); while :; do sleep 0.1; done'` + "\n")
		s.expect("up-2")
		s.enter("\x03")
		s.expect("int-2")
		s.enter("echo code-$?\n")
		s.expect("code-7")
	})
	t.Run("stop and go on", func(t *testing.T) {
		t.Parallel()
		s := newSession(t)
		s.enter("fencelock run x -- sh -c 'echo up-$((1+1)); exec cat'\n")
		s.expect("up-2")
		s.enter("\x1a")
		s.expect("Stopped")
		s.enter("echo shell-$((1+1))\n")
		s.expect("shell-2")
		s.enter("fg\n")
		s.expect("fencelock run")
		s.enter("hello\n")
		s.expect("hello\r\nhello\r\n") // the echo of the terminal and the output of cat
		s.enter("\x04")
		s.enter("echo code-$?\n")
		s.expect("code-0")
	})
	t.Run("lost while stopped", func(t *testing.T) {
		t.Parallel()
		s := newSession(t)
		s.enter("fencelock run x -- sh -c 'echo up-$((1+1)); exec cat'\n")
		s.expect("up-2")
		s.enter("\x1a")
		s.expect("Stopped")
		must(t, os.RemoveAll(s.locks))
		s.enter("fg; echo code-$?\n") // in one line, since the command may read a second one
		s.expect("was lost")
		s.expect("code-76")
	})
	t.Run("background reader", func(t *testing.T) {
		t.Parallel()
		s := newSession(t)
		s.enter("fencelock run x -- sh -c 'echo up-$((1+1)); read a; echo got-$a' &\n")
		s.expect("up-2")
		eventually(t, "the job stops", func() bool {
			s.enter("jobs; echo listed-$((1+1))\n")
			return strings.Contains(s.expect("listed-2"), "Stopped")
		})
		s.enter("fg\n")
		s.expect("fencelock run")
		s.enter("it\n")
		s.expect("got-it")
	})
	t.Run("pager", func(t *testing.T) {
		t.Parallel()
		s := newSession(t)
		s.enter(`fencelock run x -- sh -c 'echo up-$((1+1)); sleep 0.2' | sh -c 'cat; read a </dev/tty; echo "got-$a"'` + "\n")
		s.expect("up-2")
		s.enter("it\n")
		s.expect("got-it")
	})
	t.Run("interrupt in a pipe", func(t *testing.T) {
		t.Parallel()
		s := newSession(t)
		s.enter(`fencelock run x -- sh -c 'trap "echo int-$((1+1)); exit" INT; echo up-$((1+1)); while :; do sleep 0.1; done' | (trap "" INT; cat)` + "\n")
		s.expect("up-2")
		s.enter("\x03")
		s.expect("int-2")
		s.enter("echo shell-$((1+1))\n")
		s.expect("shell-2")
	})
	t.Run("left raw", func(t *testing.T) {
		t.Parallel()
		s := newSession(t)
		s.enter("stty rows 33; fencelock run x -- sh -c 'stty raw -echo; echo up-$((1+1)); kill -KILL $$'; stty -a; echo modes-$((1+1))\n")
		if out := s.expect("modes-2"); !strings.Contains(out, "rows 33") || !strings.Contains(out, " icanon") || !strings.Contains(out, " echo ") {
			t.Errorf("the terminal has the modes %s", out)
		}
	})
	t.Run("waiting line", func(t *testing.T) {
		t.Parallel()
		s := newSession(t)
		s.enter("fencelock run --note 'a job' x -- sh -c 'echo up-$((1+1)); sleep 60' &\n")
		s.expect("up-2")
		s.enter("fencelock run x -- true\n")
		s.expect(`fencelock: \d+s, waiting for "x".* held by pid \d+ on .*\(a job\)`)
		s.enter("\x03")
		s.expect(`\$ `) // what is typed before is flushed
		s.enter("echo code-$?\n")
		s.expect("code-130")
		s.enter("kill %1; wait; echo end-$((1+1))\n")
		s.expect("end-2")
	})
}
