//go:build unix

package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Ctrl-C counts before the engine has answered, too: a shell's loop stops, and watch has ended.
func TestInterruptBeforeTheEngineAnswers(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	for _, verb := range []string{"ls", "watch"} {
		cmd := exec.Command("fencelock", verb, "--url", "redis://"+silent.Addr().String()+"?timeout=1m")
		state := finish(t, cmd, func() {
			conn, err := silent.Accept()
			must(t, err)
			t.Cleanup(func() { conn.Close() })
			must(t, cmd.Process.Signal(unix.SIGINT))
		})
		status := state.Sys().(syscall.WaitStatus)
		if verb == "ls" && (!status.Signaled() || status.Signal() != unix.SIGINT) || verb == "watch" && !state.Success() {
			t.Errorf("%s: %v", verb, state)
		}
	}
}

// The new token is told where nobody reads stdout: it cannot be had again.
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
	if state := finish(t, cmd, nil); state.ExitCode() != 1 || !strings.Contains(talk.String(), "the new token is ") {
		t.Errorf("%v; it said %q", state, talk.String())
	}
}
