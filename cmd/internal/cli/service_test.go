//go:build unix

package cli

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/cmd/internal/supervise"
)

// TestServiceVariables: variables that name fencelock as the process of a service name the command
// instead, which gets the sockets. Variables that name another process stay as they are.
func TestServiceVariables(t *testing.T) {
	t.Parallel()
	const show = `for v in "$LISTEN_PID" "$WATCHDOG_PID" "$LISTEN_PIDFDID"; do test "$v" = $$ && v=own; echo "<$v>"; done; echo x >&3`
	for _, c := range []struct{ set, want string }{
		{`LISTEN_PID=$$ WATCHDOG_PID=$$ LISTEN_PIDFDID=7`, "<own>\n<own>\n<>\n"},
		{`LISTEN_PID=$$ WATCHDOG_PID=1 LISTEN_PIDFDID=7`, "<own>\n<1>\n<>\n"},
		{`LISTEN_PID=1 LISTEN_PIDFDID=7`, "<1>\n<>\n<7>\n"},
	} {
		for _, verb := range []string{"run", "elect", "once"} {
			h := newHost(t)
			socket, err := os.Create(h.path("socket"))
			must(t, err)
			must(t, os.WriteFile(h.path("script"), []byte(show), 0o700)) // without #!
			cmd := h.command("sh", "-c", c.set+` exec fencelock `+verb+` x -- "$0"`, h.path("script"))
			cmd.ExtraFiles = []*os.File{socket}
			out, err := cmd.Output()
			socket.Close()
			text, _ := os.ReadFile(socket.Name())
			if err != nil || string(out) != c.want || string(text) != "x\n" {
				t.Errorf("%s with %s: %q, %q and %v, want %q", verb, c.set, out, text, err, c.want)
			}
		}
	}
	h := newHost(t)
	must(t, os.WriteFile(h.path("script"), []byte("#!/no/such/interpreter\n"), 0o700))
	err := h.command("sh", "-c", `LISTEN_PID=$$ exec fencelock run x -- "$0"`, h.path("script")).Run()
	if exitCodeOf(err) != supervise.NotFound {
		t.Errorf("without an interpreter: %v, want exit status %d", err, supervise.NotFound)
	}
}

// TestServiceStatus: while fencelock waits, systemd learns what for, and it is not READY. What the
// command says reaches systemd as well.
func TestServiceStatus(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	service, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: h.path("notify"), Net: "unixgram"})
	must(t, err)
	defer service.Close()
	must(t, service.SetReadDeadline(time.Now().Add(scriptPatience)))
	next := func(want string) {
		t.Helper()
		b := make([]byte, 1000)
		n, err := service.Read(b)
		if must(t, err); string(b[:n]) != want {
			t.Errorf("systemd got %q, want %q", b[:n], want)
		}
	}
	for _, verb := range []string{"run", "elect"} {
		release := h.holdUntil(t, h.path("free-"+verb))
		cmd := exec.Command("fencelock", verb, "x", "--", "sh", "-c", "echo $NOTIFY_SOCKET")
		cmd.Env = append(h.command("true").Env, "NOTIFY_SOCKET="+h.path("notify"))
		var out strings.Builder
		cmd.Stdout = &out
		finish(t, cmd, func() {
			next(`STATUS=waiting for the lock "x"`)
			release()
			next("STATUS=")
		})
		if strings.TrimSpace(out.String()) != filepath.Join(h.dir, "notify") {
			t.Errorf("the command of %s has the socket %q", verb, out.String())
		}
	}
}
