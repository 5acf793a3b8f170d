package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// endsWithin is how long a command may take here. A command that waits for a file takes for ever.
const endsWithin = time.Minute

// outside describes the files of a victim beside the directory of the locks.
func outside(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		fmt.Fprintln(&all, path, st.Mode, st.Uid, st.Gid, st.Size, st.Mtim)
		return err
	}))
	return all.String()
}

// TestCommandsInAHostileDirectory: another user, who owns the directory of the locks, has put there
// what would make a command of root write elsewhere, or wait.
func TestCommandsInAHostileDirectory(t *testing.T) {
	t.Parallel()
	for what, put := range map[string]func(locks, victim string) error{
		".used is a link":      func(locks, victim string) error { return relink(victim, locks, ".used") },
		".records is a link":   func(locks, victim string) error { return relink(victim, locks, ".records") },
		"a name is a link":     func(locks, victim string) error { return relink(victim, locks, "a") },
		"its token is a link":  func(locks, victim string) error { return relink(filepath.Join(victim, "a"), locks, "a/token") },
		"name is a FIFO":       func(locks, _ string) error { return refifo(locks, "a/name") },
		"the token is a FIFO":  func(locks, _ string) error { return refifo(locks, "a/token") },
		".used is a FIFO":      func(locks, _ string) error { return refifo(locks, ".used") },
		"limit is a terabyte":  func(locks, _ string) error { return reterabyte(locks, "a/limit") },
		"ticket is a terabyte": func(locks, _ string) error { return reterabyte(locks, "a/00000000000000000001.x.h.x") },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			locks, victim := h.path("locks"), h.path("victim")
			must(t, h.command("fencelock", "run", "a", "--", "true").Run())
			must(t, h.command("fencelock", "once", "key", "--", "true").Run())
			must(t, os.MkdirAll(filepath.Join(victim, "0"), 0o700))
			must(t, os.WriteFile(filepath.Join(victim, "a"), []byte("precious"), 0o600))
			must(t, os.WriteFile(filepath.Join(victim, "name"), []byte("a"), 0o600))
			must(t, os.WriteFile(filepath.Join(locks, ".used", "a"), nil, 0o600))
			must(t, put(locks, victim))
			if os.Getuid() == 0 {
				must(t, exec.Command("chown", "-Rh", "65534", locks).Run())
			}
			before := outside(t, victim)
			for _, args := range [][]string{
				{"ls"}, {"status", "a"}, {"run", "-n", "a", "--", "true"}, {"run", "-n", "b", "--", "true"}, {"run", "--tick", "1h", "job", "--", "true"},
				{"once", "-n", "key", "--", "true"}, {"once", "-n", "other", "--", "true"}, {"jobs"}, {"limit", "-n", "--rate", "1/h", "rate"},
				{"watch"}, {"ui"}, {"break", "--reason", "test", "a"}, {"resize", "a", "3"}, {"doctor"}, {"holds", "a"},
				{"acquire", "-n", "--max-hold", "1s", "--detach", "a"}, {"ls"},
			} {
				endsSoon(t, h.command("fencelock", args...), locks)
				if now := outside(t, victim); now != before {
					t.Fatalf("fencelock %s changed what is outside from\n%sto\n%s", strings.Join(args, " "), before, now)
				}
			}
		})
	}
}

// relink replaces a path below the directory of the locks by a link.
func relink(to, locks, path string) error {
	if err := os.RemoveAll(filepath.Join(locks, path)); err != nil {
		return err
	}
	return os.Symlink(to, filepath.Join(locks, path))
}

// refifo replaces a path below the directory of the locks by a FIFO.
func refifo(locks, path string) error {
	if err := os.RemoveAll(filepath.Join(locks, path)); err != nil {
		return err
	}
	return unix.Mkfifo(filepath.Join(locks, path), 0o666)
}

// reterabyte replaces a path below the directory of the locks by a file of a terabyte.
func reterabyte(locks, path string) error {
	if err := os.WriteFile(filepath.Join(locks, path), []byte("{}"), 0o666); err != nil {
		return err
	}
	return os.Truncate(filepath.Join(locks, path), 1<<40)
}

// endsSoon runs a command. watch and ui end at TERM, the others by themselves. A command that fails
// names the file that it cannot use, unless it finds the name free or held.
func endsSoon(t *testing.T, cmd *exec.Cmd, locks string) {
	t.Helper()
	var out bytes.Buffer
	said, err := os.CreateTemp(t.TempDir(), "said") // a pipe would stay open as long as a keeper runs
	must(t, err)
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	must(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }() // ends with the command
	patience := endsWithin
	if cmd.Args[1] == "watch" || cmd.Args[1] == "ui" {
		patience = 300 * time.Millisecond
	}
	select {
	case err = <-done:
	case <-time.After(patience):
		if patience == endsWithin {
			t.Errorf("%v has not ended by itself", cmd.Args)
		}
		must(t, cmd.Process.Signal(unix.SIGTERM))
		select {
		case <-done:
			return
		case <-time.After(endsWithin):
			_ = cmd.Process.Kill()
			t.Fatalf("%v ignores TERM", cmd.Args)
		}
	}
	text, readErr := os.ReadFile(said.Name())
	must(t, readErr)
	out.Write(text)
	exit := exitCodeOf(err)
	if exit == ExitUsage || exit == ExitConfig && !strings.Contains(out.String(), locks) {
		t.Errorf("%v: %s", cmd.Args, out.String())
	}
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Errorf("%v: %v", cmd.Args, err)
	}
}

// TestBytes: the path, the arguments and the environment of a command may be any bytes.
func TestBytes(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	path := h.path("p\xff")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\nprintf '<%s>' \"$@\" \"$LATIN\"\n"), 0o700))
	cmd := h.command("fencelock", "run", "x", "--", path, "a\xfe", "", "b")
	cmd.Env = append(cmd.Env, "LATIN=\xe9")
	if out, err := cmd.Output(); err != nil || string(out) != "<a\xfe><><b><\xe9>" {
		t.Errorf("%q, %v", out, err)
	}
}
