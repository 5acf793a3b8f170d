//go:build unix

package cli

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silentServer returns the port of a server that accepts connections and never answers, and a
// function that waits for a connection.
func silentServer(t *testing.T) (port string, wait func()) {
	silent, err := net.Listen("tcp4", ":0")
	must(t, err)
	t.Cleanup(func() { silent.Close() })
	_, port, err = net.SplitHostPort(silent.Addr().String())
	must(t, err)
	return port, func() {
		must(t, silent.(*net.TCPListener).SetDeadline(time.Now().Add(scriptPatience)))
		conn, err := silent.Accept()
		must(t, err)
		t.Cleanup(func() { conn.Close() })
	}
}

// TestSignalsWhileTheServerIsSilent: a verb whose server does not answer ends when it receives a
// signal, with the exit code of that signal and without a dump of its goroutines. After SIGINT it
// dies of SIGINT, so that a shell stops its loop. watch exits with 0, since a signal is the usual
// way to end it.
func TestSignalsWhileTheServerIsSilent(t *testing.T) {
	t.Parallel()
	interrupt, redlockHasNo := unix.SIGINT, map[string]bool{"jobs": true, "limit": true, "once": true, "resize": true}
	for line, codes := range map[string]map[unix.Signal]int{
		"ls":                 {unix.SIGTERM: 143, interrupt: -1, unix.SIGQUIT: 131, unix.SIGABRT: 134, unix.SIGHUP: 129},
		"watch":              {unix.SIGTERM: 0, interrupt: 0, unix.SIGQUIT: 131},
		"status x":           {unix.SIGTERM: 143},
		"break x --reason r": {unix.SIGTERM: 143},
		"jobs":               {unix.SIGTERM: 143},
		"jobs pause x":       {unix.SIGTERM: 143},
		"resign x":           {unix.SIGTERM: 143},
		"resize x 3":         {unix.SIGTERM: 143},
		"init --yes":         {unix.SIGTERM: 143},
		"doctor":             {unix.SIGTERM: 143, unix.SIGABRT: 134},
		"limit --rate 1/s x": {unix.SIGTERM: 143, unix.SIGABRT: 134},
		"run x -- true":      {unix.SIGTERM: 143, interrupt: -1, unix.SIGQUIT: 131, unix.SIGABRT: 134},
		"once x -- true":     {unix.SIGTERM: 143},
		"elect x -- true":    {unix.SIGTERM: 143},
	} {
		for signal, code := range codes {
			for scheme, url := range map[string]string{
				"redis":    "redis://127.0.0.1:PORT?timeout=1m&quarantine=on",
				"redlock":  "redlock://127.0.0.1:PORT,127.0.0.2:PORT,127.0.0.3:PORT?timeout=1m",
				"postgres": "postgres://127.0.0.1:PORT/x?connect_timeout=60",
			} {
				if scheme != "redis" && signal != unix.SIGTERM || scheme == "redlock" && redlockHasNo[strings.Fields(line)[0]] {
					continue
				}
				t.Run(fmt.Sprintf("%s/%v/%s", line, signal, scheme), func(t *testing.T) {
					t.Parallel()
					port, connected := silentServer(t)
					var talk bytes.Buffer
					cmd := exec.Command("fencelock", append([]string{"--url", strings.ReplaceAll(url, "PORT", port)}, strings.Fields(line)...)...)
					cmd.Stderr = &talk
					state := finish(t, cmd, func() {
						connected()
						must(t, cmd.Process.Signal(signal))
					})
					if state.ExitCode() != code || code == -1 && state.Sys().(syscall.WaitStatus).Signal() != signal || strings.Contains(talk.String(), "goroutine") {
						t.Errorf("%v, want code %d; it said %q", state, code, talk.String())
					}
				})
			}
		}
	}
}

// TestSignalsThatEndAWait: each signal that asks a process to end also ends its wait, and removes
// it from the queue.
func TestSignalsThatEndAWait(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	defer h.holdUntil(t, h.path("free"))()
	for signal, code := range map[unix.Signal]int{unix.SIGTERM: 143, unix.SIGQUIT: 131, unix.SIGABRT: 134, unix.SIGHUP: 129} {
		var talk bytes.Buffer
		cmd := h.command("fencelock", "run", "x", "--", "true")
		cmd.Stderr = &talk
		state := finish(t, cmd, func() {
			h.waits(t)
			must(t, cmd.Process.Signal(signal))
		})
		if state.ExitCode() != code || !strings.Contains(talk.String(), "gave up waiting") {
			t.Errorf("%v: %v, want code %d; it said %q", signal, state, code, talk.String())
		}
		if text, err := h.command("fencelock", "status", "x").Output(); err != nil || strings.Contains(string(text), "waiting") {
			t.Errorf("%v: the queue after it is %q, %v", signal, text, err)
		}
	}
}

// TestTokenThatNobodyReads: if stdout cannot be written, the error on stderr contains the new
// token, since it cannot be read again.
func TestTokenThatNobodyReads(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	free := h.path("free")
	defer h.holdUntil(t, free)()
	r, w, err := os.Pipe()
	must(t, err)
	defer w.Close()
	r.Close()
	var talk bytes.Buffer
	cmd := h.command("fencelock", "break", "x", "--reason", "a test")
	cmd.Stdout, cmd.Stderr = w, &talk
	if state := finish(t, cmd, nil); state.ExitCode() != ExitOutput || !strings.Contains(talk.String(), "the new token ") {
		t.Errorf("%v; it said %q", state, talk.String())
	}
}
