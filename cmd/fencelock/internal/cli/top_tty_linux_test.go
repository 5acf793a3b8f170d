package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gdamore/tcell/v3/vt"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/engineurl"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// screen is a session whose output is shown by a terminal emulator.
type screen struct {
	*session
	emulator vt.MockTerm
	raw      strings.Builder // all that was shown
}

// newScreen starts a shell on a terminal of 80 columns and 24 rows. The variables of env are in the
// environment of the shell.
func newScreen(t *testing.T, env ...string) *screen {
	shell := exec.Command("sh", "-i")
	shell.Env = append(os.Environ(), append([]string{"ENV=", "PS1=$ ", "TERM=xterm-256color", "LC_ALL=C.UTF-8"}, env...)...)
	s := &screen{session: startSession(t, shell, ""), emulator: vt.NewMockTerm(vt.MockOptSize{X: 80, Y: 24})}
	must(t, s.emulator.Start())
	t.Cleanup(func() { s.emulator.Stop() })
	s.resize(80, 24)
	return s
}

// resize changes the size of the terminal. The kernel then sends SIGWINCH.
func (s *screen) resize(width, height int) {
	s.t.Helper()
	s.lines()
	s.emulator.SetSize(vt.Coord{X: vt.Col(width), Y: vt.Row(height)})
	s.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)})
	})
}

// control calls fn with the descriptor of the master, which Fd would make blocking.
func (s *screen) control(fn func(fd int) error) {
	s.t.Helper()
	conn, err := s.master.SyscallConn()
	must(s.t, err)
	var failed error
	must(s.t, conn.Control(func(fd uintptr) { failed = fn(int(fd)) }))
	must(s.t, failed)
}

// lines returns what the terminal shows.
func (s *screen) lines() []string {
	s.t.Helper()
	s.mu.Lock()
	output := string(s.out.Next(s.out.Len()))
	s.mu.Unlock()
	s.raw.WriteString(output)
	_, err := s.emulator.Write([]byte(output))
	must(s.t, err)
	size, err := s.emulator.WindowSize()
	must(s.t, err)
	var all []string
	for y := range size.Height {
		line := ""
		for x := 0; x < size.Width; {
			cell := s.emulator.GetCell(vt.Coord{X: vt.Col(x), Y: vt.Row(y)})
			if cell.C == "" {
				cell.C = " "
			}
			line += cell.C
			x += max(cell.W, 1)
		}
		all = append(all, strings.TrimRight(line, " "))
	}
	return all
}

// shows waits until the screen matches pattern.
func (s *screen) shows(pattern string) {
	s.t.Helper()
	s.until(pattern, func(text string) bool { return regexp.MustCompile("(?m)" + pattern).MatchString(text) })
}

// hides waits until the screen does not match pattern.
func (s *screen) hides(pattern string) {
	s.t.Helper()
	s.until("not "+pattern, func(text string) bool { return !regexp.MustCompile("(?m)" + pattern).MatchString(text) })
}

func (s *screen) until(what string, ok func(text string) bool) {
	s.t.Helper()
	for end := time.Now().Add(scriptPatience); ; time.Sleep(10 * time.Millisecond) {
		text := strings.Join(s.lines(), "\n")
		if ok(text) {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("the screen does not show %s:\n%s", what, text)
		}
	}
}

// press enters keys, and waits until the screen matches pattern.
func (s *screen) press(keys, pattern string) {
	s.t.Helper()
	s.enter(keys)
	s.shows(pattern)
}

// The keys that are not letters.
const (
	keyUp, keyDown, keyHome, keyEnd = "\x1b[A", "\x1b[B", "\x1b[H", "\x1b[F"
	keyPageUp, keyPageDown          = "\x1b[5~", "\x1b[6~"
	keyEscape, keyEnter, keyErase   = "\x1b", "\r", "\x7f"
	keyCtrlC, keyCtrlL, keyCtrlU    = "\x03", "\x0c", "\x15"
	keyCtrlZ                        = "\x1a"
)

// crowd is a Locker on a server, for locks that top shows.
type crowd struct {
	t     *testing.T
	locks *fencelock.Locker
}

func newCrowd(t *testing.T, url string) crowd {
	engine, closeEngine, err := engineurl.Open(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { closeEngine() })
	return crowd{t, fencelock.New(engine, nil)}
}

// hold acquires a name until the test ends.
func (c crowd) hold(name, note string, shared bool) *fencelock.Lock {
	c.t.Helper()
	lock, err := c.locks.With(fencelock.Options{Note: note, Shared: shared}).Acquire(c.t.Context(), name)
	must(c.t, err)
	c.t.Cleanup(func() { lock.Release() })
	return lock
}

// wait makes a request that waits until the test ends, and returns when it is in the queue.
func (c crowd) wait(name, note string) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	c.t.Cleanup(func() { cancel(); <-done })
	before, err := c.locks.Status(ctx, name)
	must(c.t, err)
	go func() { // ends with ctx, or soon after the grant
		defer close(done)
		if lock, err := c.locks.With(fencelock.Options{Note: note}).Acquire(ctx, name); err == nil {
			lock.Release()
		}
	}()
	eventually(c.t, "a request waits", func() bool {
		now, err := c.locks.Status(ctx, name)
		return err == nil && len(now.Waiters) > len(before.Waiters)
	})
}

// startTop starts top on a Redis with four names: alpha waits longest, gamma has two holders.
func startTop(t *testing.T, env ...string) (*screen, crowd, *redistest.Redis) {
	server := redistest.StartRedis(t)
	url := "redis://" + server.Addr()
	c := newCrowd(t, url)
	c.hold("delta", "note of delta", false)
	c.hold("gamma", "the first", true)
	c.hold("gamma", "the second", true)
	c.hold("alpha", "note of alpha", false)
	c.wait("alpha", "first in the queue")
	c.wait("alpha", "second in the queue")
	c.hold("beta", "note of beta", false)
	c.wait("beta", "waits for beta")
	s := newScreen(t, append(env, "FENCELOCK_URL="+url)...)
	s.enter("before=$(stty -g); fencelock top; echo code-$?\n")
	s.shows(`^fencelock top  redis://.* UTC  every`)
	s.shows(`^4 names  5 held  3 waiting`)
	return s, c, server
}

// left waits until top has ended with a code, and checks that the terminal is as before.
func (s *screen) left(code string) {
	s.t.Helper()
	s.shows("^code-" + code)
	s.enter("test \"$before\" = \"$(stty -g)\" && echo same-$((1+1))\n")
	s.shows("^same-2")
	on, off := regexp.MustCompile(`\x1b\[\?(1049|2004)h|\x1b\[\?(25|7)l`), regexp.MustCompile(`\x1b\[\?(1049|2004)l|\x1b\[\?(25|7)h`)
	if raw := s.raw.String(); len(on.FindAllString(raw, -1)) == 0 || len(off.FindAllString(raw, -1)) < 4 {
		s.t.Errorf("the terminal was not restored: %q", raw)
	}
}

func TestTopSelectsAndSorts(t *testing.T) {
	t.Parallel()
	s, _, _ := startTop(t)
	s.shows(`^ NAME .*WAIT▼ N HOLDER +AGE LEASE +NOTE\n▸alpha +\S+ 2 \d+@\S+ .*━-* .* note of alpha\n beta .*\n delta .*\n gamma .*\+1 `)
	s.press(keyDown, `^▸beta`)
	s.press("j", `^▸delta`)
	s.press(keyUp, `^▸beta`)
	s.press("k", `^▸alpha`)
	s.press("G", `^▸gamma`)
	s.press("g", `^▸alpha`)
	s.press(keyEnd, `^▸gamma`)
	s.press(keyHome, `^▸alpha`)
	s.press(keyPageDown, `^▸gamma`)
	s.press(keyPageUp, `^▸alpha`)

	s.press("s", ` AGE▼ .*\n▸delta`) // the cursor was at the top, where it stays
	s.press(keyDown, `^▸gamma`)
	s.press("r", ` AGE▲ .*\n beta(.*\n)* delta`)
	s.shows(`^▸gamma`) // the cursor stays on a name that was selected
	s.press("s", ` LEASE▼ `)
	s.press("s", ` N▼ .*\n alpha .*\n beta`)
	s.press("s", ` HOLDER▼ `)
	s.press("s", ` NAME▼ .*\n alpha .*\n beta .*\n delta .*\n▸gamma`)
	s.press("s", ` WAIT▼ `)

	s.press("w", `^2 of 4 names  2 held  3 waiting`)
	s.hides(`delta|gamma`)
	s.press("w", `^4 names`)
	s.press("?", `^ +Enter +show the holders and the queue`)
	s.press("x", `^ NAME `)
	s.enter("q")
	s.left("0")
}

func TestTopFilters(t *testing.T) {
	t.Parallel()
	s, _, _ := startTop(t)
	s.press("/BET", `^filter: BET$`)
	s.shows(`^1 of 4 names`)
	s.press(keyErase+keyErase+keyErase, `^4 names`)
	s.press("note of d", `^▸delta`)
	s.shows(`^1 of 4 names`)
	s.press(keyEscape, `^4 names`) // as before
	s.press("/waits for", `^▸beta`)
	s.press(keyEnter, `^filter: waits for  \(Esc removes it\)$`)
	s.shows(`^1 of 4 names`)
	s.press("/"+keyCtrlU+"!a"+keyEnter, `no name is selected`)
	s.press("/"+keyCtrlU+"!gam"+keyEnter, `^3 of 4 names`)
	s.hides(`gamma`)
	s.press(keyEscape+"j", `^▸beta`) // the terminal reports both as one key with Alt
	s.shows(`^4 names`)
	s.enter(keyCtrlC)
	s.left("0")
}

func TestTopShowsQueue(t *testing.T) {
	t.Parallel()
	s, c, _ := startTop(t)
	s.press(keyEnter, `^alpha  exclusive, 1 holding, 2 waiting\n +PROCESS +AGE LEASE +TOKEN NOTE\n▸held .* \d{16} note of alpha\n 1 .* first in the queue\n 2 .* second in the queue`)
	s.press(keyDown, `^▸1 .* first in`)
	s.press("b", `no holder is selected`)
	c.wait("alpha", "third in the queue")
	s.shows(`^ 3 .* third in the queue`)
	s.press("G", `^▸3 `)
	s.press("g", `^▸held`)
	s.enter(keyEscape)
	s.hides(`PROCESS`)
	s.press(keyDown+keyEnter, `^beta  exclusive, 1 holding, 1 waiting`)
	s.enter(keyEnter)
	s.hides(`PROCESS`)
	s.enter("q")
	s.left("0")
}

func TestTopBreaks(t *testing.T) {
	t.Parallel()
	s, c, _ := startTop(t)
	// A terminal marks pasted text. As keys, this one would break a lock.
	s.enter("\x1b[200~b\nreason\r\r\x1b[201~")
	s.press("Gkb", `^reason to break delta, held by \d+@\S+:$`)
	s.press(keyEnter, `the reason is empty`)
	s.press("\x1b[200~pasted\r text\x1b[201~", `: pasted text`)
	s.press(keyCtrlU+"host is gonee"+keyErase+keyEnter, `^broke delta, held by \d+@\S+; the new token is \d+`)
	s.hides(`note of delta`)

	// Of two holders, one must be selected.
	s.press("/gamma"+keyEnter, `^▸gamma`)
	s.press("b", `^this lock has several holders`)
	s.press(keyDown, `^▸held .* the second`)
	s.press("breason", `^reason to break gamma.*: reason`)
	s.press(keyEscape, `Esc closes`)
	s.press("bagain"+keyEnter, `^broke gamma, held by`)
	s.shows(`^gamma  shared, 1 holding, 0 waiting`)
	s.shows(`^▸held .* the first`)
	status, err := c.locks.Status(t.Context(), "gamma")
	if err != nil || len(status.Holders) != 1 || status.Holders[0].Note != "the first" {
		t.Errorf("gamma is held by %v, %v", status.Holders, err)
	}
	s.enter("q")
	s.shows(`^fencelock: broke delta, held by .* token is \d+`)
	s.shows(`^fencelock: broke gamma`)
	s.left("0")
}

// TestTopBreaksNoSuccessor: the holder that was selected has given the lock back, while the reason
// was typed. The next holder keeps it.
func TestTopBreaksNoSuccessor(t *testing.T) {
	t.Parallel()
	s, c, _ := startTop(t)
	lock := c.hold("omega", "to be broken", false)
	s.press("/omega"+keyEnter, `^▸omega .* to be broken`)
	s.press("btoo late", `^reason to break omega.*: too late`)
	must(t, lock.Release())
	next := c.hold("omega", "the successor", false)
	s.shows(`^▸omega .* the successor`)
	s.press(keyEnter, `^nothing was broken: \d+@\S+ does not hold omega any more`)
	if err := next.Err(); err != nil {
		t.Errorf("the successor: %v", err)
	}
	s.enter("q")
	s.left("0")
}

// TestTopKeepsItsPicture: a pause keeps the picture, and a server that does not answer leaves the last
// picture, marked as stale.
func TestTopKeepsItsPicture(t *testing.T) {
	t.Parallel()
	s, c, server := startTop(t)
	s.press("p", `^fencelock top .*PAUSED \d\d:`)
	c.hold("epsilon", "", false)
	time.Sleep(2 * listInterval)
	s.hides(`epsilon`)
	s.press("p", `^ epsilon`)
	server.Freeze(t)
	s.shows(`^fencelock top .*STALE \d\d:`)
	s.shows(`^(no answer|not listed) for `)
	s.press(keyDown, `^▸beta`) // keys work
	server.Kill(t)
	s.shows(`^not listed for .*: .*unavailable`)
	s.shows(`^ alpha .* note of alpha`)
	server.Restart(t)
	s.shows(`^fencelock top .* every`)
	s.enter("q")
	s.left("0")
}

func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	s, _, _ := startTop(t)
	s.hides(` MODE `)
	s.resize(120, 40)
	s.shows(`^ NAME +MODE +WAIT▼ N HOLDER +SINCE +AGE LEASE +NOTE`)
	s.shows(`^Enter details .* q quit$`)
	if last := s.lines()[39]; !strings.HasPrefix(last, "Enter details") {
		t.Errorf("the last line is %q", last)
	}
	s.resize(30, 5)
	s.hides(`MODE`)
	s.resize(80, 24)
	s.press(keyCtrlL, `^▸alpha`)

	s.press(keyCtrlZ, `Stopped|suspended`)
	s.enter("echo shell-$((1+1))\n")
	s.shows(`^shell-2`)
	s.press("fg\n", `^▸alpha`)
	s.press(keyDown, `^▸beta`)
	s.press("q", `\$$`)
	s.enter("echo code-$?\n") // the stop has ended the list of commands
	s.left("0")
}

// TestTopEndsBySignal: after a signal, the terminal is as before.
func TestTopEndsBySignal(t *testing.T) {
	t.Parallel()
	for signal, code := range map[syscall.Signal]string{syscall.SIGTERM: "0", syscall.SIGINT: "0", syscall.SIGHUP: "129"} {
		s, _, _ := startTop(t)
		must(t, syscall.Kill(s.pid(), signal))
		s.left(code)
	}
}

// pid returns the process group in the foreground of the terminal, which is that of its only
// process.
func (s *screen) pid() (pid int) {
	s.t.Helper()
	s.control(func(fd int) (err error) {
		pid, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	return pid
}

// TestTopEndsWithItsTerminal: top does not stay behind when the terminal is closed, even if it
// ignores hangups.
func TestTopEndsWithItsTerminal(t *testing.T) {
	t.Parallel()
	server := redistest.StartRedis(t)
	for _, command := range []string{"exec fencelock top\n", "trap '' HUP; exec fencelock top\n"} {
		s := newScreen(t, "FENCELOCK_URL=redis://"+server.Addr())
		s.press(command, `no lock is held or waited for`)
		pid := s.pid()
		must(t, s.master.Close())
		eventually(t, "top ends", func() bool {
			state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			return errors.Is(err, os.ErrNotExist) || strings.Contains(string(state), ") Z ")
		})
	}
}

func TestTopWithoutColors(t *testing.T) {
	t.Parallel()
	colors := regexp.MustCompile(`\x1b\[[0-9;]*[34][0-9][;m]`)
	for _, env := range []string{"NO_COLOR=1", "TERM=vt100", "TERM=xterm-256color"} {
		s, _, _ := startTop(t, env)
		s.enter("q")
		s.left("0")
		if found, want := colors.MatchString(s.raw.String()), env == "TERM=xterm-256color"; found != want {
			t.Errorf("%s: colors are used: %v", env, found)
		}
	}
}

func TestTopWithoutUnicode(t *testing.T) {
	t.Parallel()
	s, _, _ := startTop(t, "LC_ALL=C")
	s.shows(`^ NAME .*WAITv N HOLDER +AGE LEASE +NOTE\n>alpha .*=+-* `)
	s.enter("q")
	s.left("0")
}

func TestTopNeedsATerminal(t *testing.T) {
	t.Parallel()
	s := newScreen(t, "TERM=dumb", "FENCELOCK_URL=mem:")
	s.enter("fencelock top; echo code-$?\n")
	s.shows(`top needs a terminal that can move the cursor, and TERM is dumb`)
	s.shows(`^try: fencelock ls --watch\ncode-64`)
	s.enter("TERM=xterm fencelock top | cat; echo end-$((1+1))\n")
	s.shows(`^fencelock: top needs a terminal, and stdout is not one\ntry: fencelock ls --watch\nend-2`)
}

// TestTopInTmux shows the same in a terminal of others.
func TestTopInTmux(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not here; try: .ci/need shells")
	}
	server := redistest.StartRedis(t)
	url := "redis://" + server.Addr()
	c := newCrowd(t, url)
	c.hold("alpha", "\x1b[2Jnote", false)
	c.wait("alpha", "waits")
	c.hold("漢字\x1b]0;x\a", "", false)
	dir, err := os.MkdirTemp("", "fencelock")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	tmux := func(args ...string) string {
		cmd := exec.Command("tmux", append([]string{"-S", dir + "/socket", "-f", "/dev/null"}, args...)...)
		cmd.Env = append(os.Environ(), "FENCELOCK_URL="+url, "LC_ALL=C.UTF-8")
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	t.Cleanup(func() { tmux("kill-server") })
	tmux("new-session", "-d", "-x", "80", "-y", "24", "fencelock top; echo code-$?; sleep 600")
	shows := func(pattern string) {
		t.Helper()
		text := ""
		eventually(t, "tmux shows "+pattern, func() bool {
			text = tmux("capture-pane", "-p")
			return regexp.MustCompile("(?m)" + pattern).MatchString(text)
		})
	}
	shows(`^▸alpha .* "\\x1b\[2Jnote"$`)
	shows(`^ "漢字\\x1b\]0;x\\a" +\d+@`)
	tmux("send-keys", "Enter")
	shows(`^alpha  exclusive, 1 holding, 1 waiting`)
	tmux("resize-window", "-x", "130", "-y", "40")
	shows(`^ NAME +MODE `)
	tmux("send-keys", "Escape", "b")
	shows(`^reason to break alpha`)
	tmux("send-keys", "-l", "by hand")
	tmux("send-keys", "Enter")
	shows(`^broke alpha, held by`)
	tmux("send-keys", "q")
	shows(`^code-0$`)
}
