//go:build unix

package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/cmd/internal/supervise"
)

// evalForms returns the lines with which help and a page acquire a lock in a shell.
func evalForms(t *testing.T) map[string]string {
	t.Helper()
	help, err := exec.Command("fencelock", "help", "acquire").Output()
	must(t, err)
	page, err := os.ReadFile("../../../docs/recipes.md")
	must(t, err)
	forms := map[string]string{}
	for name, text := range map[string][]byte{"help": help, "recipes.md": page} {
		forms[name] = string(regexp.MustCompile(`(?m)^ *vars=.*\n.*eval.*$`).Find(text))
	}
	return forms
}

// TestEvalOfAcquire: a script with the lines of help and pages goes on only with a lock, in every
// shell: not if the lock is busy, and not if fencelock is missing or is killed.
func TestEvalOfAcquire(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	fencelock, err := exec.LookPath("fencelock")
	must(t, err)
	for _, dir := range []string{"works", "killed", "missing"} {
		must(t, os.Mkdir(h.path(dir), 0o700))
	}
	must(t, os.Symlink(fencelock, h.path("works/fencelock")))
	must(t, os.WriteFile(h.path("killed/fencelock"), []byte("#!/bin/sh\nkill -9 $$\n"), 0o700))
	for _, name := range []string{"nightly", "deploy"} {
		out, err := h.in("file://"+h.path("taken"), "acquire", "--detach", "--max-hold", "10m", name).Output()
		must(t, err)
		_, handle, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
		t.Cleanup(func() { _ = h.in("file://"+h.path("taken"), "release", handle).Run() })
	}
	for where, form := range evalForms(t) {
		name := strings.Fields(form)
		if len(name) < 4 {
			t.Fatalf("%s does not show how to acquire a lock in a shell", where)
		}
		form = strings.Replace(form, "acquire ", "acquire -n ", 1) + "\necho \"went on, token ${FENCELOCK_TOKEN:-none}\"\n"
		for _, shell := range []string{"sh", "dash", "bash", "zsh"} {
			path, err := exec.LookPath(shell)
			if err != nil {
				continue // zsh and dash are not everywhere
			}
			for _, c := range []struct {
				dir, locks, out string
				code            int
			}{
				{"works", where + shell, `went on, token [1-9]\d*\n`, 0},
				{"works", "taken", ``, exitBusy},
				{"killed", where + shell, ``, 137},
				{"missing", where + shell, ``, supervise.NotFound},
			} {
				cmd := exec.Command(path, "-c", form)
				cmd.Env = append(os.Environ(), "PATH="+h.path(c.dir), "FENCELOCK_URL=file://"+filepath.Join(h.dir, c.locks))
				var said bytes.Buffer
				cmd.Stderr = &said
				out, err := cmd.Output()
				if code := exitCodeOf(err); code != c.code || !regexp.MustCompile("^"+c.out+"$").Match(out) {
					t.Errorf("%s in %s with fencelock that is %s: exit code %d, want %d; it printed %q and said %q", where, shell, c.dir, code, c.code, out, said.String())
				}
			}
		}
	}
}
