//go:build unix

package storetests_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommand runs the command fencelock-all on a cluster of each kind.
func TestCommand(t *testing.T) {
	program := filepath.Join(t.TempDir(), "fencelock-all")
	build := exec.Command("go", "build", "-ldflags=-w", "-o", program, "./fencelock-all")
	build.Dir = "../../cmd"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, s := range stores {
		t.Run(s.kind, func(t *testing.T) {
			c := s.start(t, 3)
			url := s.kind + "://" + strings.Join(c.addrs(), ",") + "/part"
			if s.kind == "nats" {
				url += "?replicas=3"
			}
			// The command must end with the code, and print the text.
			run := func(code int, text string, args ...string) {
				t.Helper()
				cmd := exec.Command(program, args...)
				cmd.Env = append(os.Environ(), "FENCELOCK_URL="+url)
				out, err := cmd.CombinedOutput()
				exit := &exec.ExitError{}
				got := 0
				if errors.As(err, &exit) {
					got = exit.ExitCode()
				} else if err != nil {
					t.Fatal(err)
				}
				if got != code || !strings.Contains(string(out), text) {
					t.Errorf("fencelock-all %q ended with %d, want %d and %q\n%s", args, got, code, text, out)
				}
			}
			run(7, "hello", "run", "nightly", "--", "sh", "-c", "echo hello; exit 7")
			run(75, "held", "run", "nightly", "--", program, "--url", url, "run", "-n", "nightly", "--", "true")
			run(0, "nightly", "run", "nightly", "--", program, "--url", url, "ls")
			run(1, "", "holds", "nightly")
			for range 2 { // the second time it prints the output of the first
				run(0, "once", "once", "key", "--", "echo", "once")
			}
			run(0, "nothing is left", "chaos", "--url", url, "--for", "2s", "--prefix", "mine", "--out", t.TempDir())
			run(0, "done", "run", "mine too", "--", "echo", "done") // its record remains
			run(69, "in use: 1 keys", "chaos", "--url", url, "--prefix", "mine")
			if s.kind == "etcd" {
				requirePassword(t, c)
				run(0, "nothing is left", "chaos", "--url", strings.Replace(url, "://", "://root:right@", 1), "--for", "1s", "--out", t.TempDir())
				run(78, "user name is empty", "ls")
				url = strings.Replace(url, "://", "://root:right@", 1)
				run(0, "", "ls")
				url = strings.Replace(url, "right", "wrong", 1)
				run(78, "authentication failed", "ls")
			}
			url = s.kind + "://root:right@127.0.0.1:1/part"
			run(69, "unavailable: 127.0.0.1:1: ", "ls")
		})
	}
}

// requirePassword makes a cluster of etcd require the user root with the password right.
func requirePassword(t *testing.T, c *cluster) {
	t.Helper()
	admin := etcdClient(t, c.addrs())
	_, err := admin.UserAdd(t.Context(), "root", "right")
	_, err2 := admin.UserGrantRole(t.Context(), "root", "root")
	_, err3 := admin.AuthEnable(t.Context())
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
}
