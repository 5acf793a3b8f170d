package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fencelock/fencelock/cmd/internal/termtext"
)

// completions are typed lines, and what a tab at their end completes them to. For each line at most
// one word matches.
var completions = []struct{ typed, want string }{
	{"stat", "status"},
	{"run --nonb", "run --nonblock"},
	{"run --on-lost t", "run --on-lost terminate"},
	{"run --on-lost=i", "run --on-lost=ignore"},
	{"run -n -w 5 --shar", "run -n -w 5 --shared"},
	{"completion z", "completion zsh"},
	{"--url redis+s", "--url redis+sentinel://"},
	{"status ni", "status nightly"},
	{"break --reason x invoice:4", "break --reason x invoice:42"},
	{"run x -- onlyone", "run x -- onlyonesuchcommand"},
	{"run -n x -- cat unusual", "run -n x -- cat unusualfile"},
	{"status reb", "status reb"}, // a name that contains shell syntax is not offered
}

// evaluated are typed lines that would create the file pwned if the completion script evaluated
// them.
var evaluated = []string{
	"run x -c 'true && touch pwned' --tt", "run --note 'a; touch pwned' --tt", "status $(touch pwned) ni", "status (touch pwned) ni", "status `touch pwned` ni",
	"status $(touch pwned", "run x -- echo $(touch pwned) --tt", "run x -- echo >pwned --tt", "ls >pwned --sc",
}

func TestCompletionInBash(t *testing.T) {
	t.Parallel()
	const library = "/usr/share/bash-completion/bash_completion"
	if _, err := os.Stat(library); err != nil {
		t.Skip("the package bash-completion is not here; try: .ci/need shells")
	}
	completeInTerminal(t, "source "+library, "bash", "--norc", "--noprofile", "-i")
}

func TestCompletionInZsh(t *testing.T) {
	t.Parallel()
	completeInTerminal(t, "bindkey -e; autoload -Uz compinit && compinit -u -D", "zsh", "-f", "-i")
}

// completeInTerminal types each line into a shell and completes it. It then puts printf before the
// completed line and runs that, so that the test need not parse what the shell displays.
func completeInTerminal(t *testing.T, setup, shell string, args ...string) {
	dir := completionDir(t, shell)
	cmd := exec.Command(shell, args...)
	cmd.Dir, cmd.Env = dir, completionEnv(dir)
	s := startSession(t, cmd, filepath.Join(dir, "locks"))
	s.enter(setup + "\n")
	s.enter("source <(fencelock completion " + shell + "); echo ready-$((1+1))\n")
	s.expect("ready-2")
	for _, c := range completions {
		s.enter("fencelock " + c.typed + "\t\x01printf '<%s>' begin \x05\n")
		s.expect("<begin>")
		s.enter("echo end-$((1+1))\n")
		got, _, _ := strings.Cut(s.expect("end-2"), "echo")
		if want := "<" + strings.ReplaceAll("fencelock "+c.want, " ", "><") + ">"; !strings.HasPrefix(got, want) {
			t.Errorf("%q became %q, want %s", c.typed, got, want)
		}
	}
	for _, typed := range evaluated { // the line is cleared and not run
		s.enter("fencelock " + typed + "\t\x05\x15echo end-$((1+1))\n")
		s.expect("end-2")
	}
}

func TestCompletionInFish(t *testing.T) {
	t.Parallel()
	dir := completionDir(t, "fish")
	script := "fencelock completion fish | source\n"
	for _, c := range completions {
		script += "complete -C 'fencelock " + c.typed + "' | string replace -r '\\t.*' ''; echo .\n"
	}
	for _, typed := range evaluated {
		script += "complete -C " + termtext.ShellQuote("fencelock "+typed) + "\n"
	}
	cmd := exec.Command("fish", "--no-config", "-c", script)
	cmd.Dir, cmd.Env = dir, completionEnv(dir)
	out, err := cmd.CombinedOutput()
	must(t, err)
	answers := strings.Split(string(out), ".\n")
	for i, c := range completions {
		want := c.want[strings.LastIndex(c.want, " ")+1:] + "\n"
		if c.want == c.typed {
			want = ""
		}
		if answers[i] != want {
			t.Errorf("%q: %q, want %q", c.typed, answers[i], want)
		}
	}
}

// completionDir returns a directory with the files and the held locks that the lines complete to.
func completionDir(t *testing.T, shell string) string {
	if _, err := exec.LookPath(shell); err != nil {
		t.Skipf("%s is not here; try: .ci/need shells", shell)
	}
	dir, err := os.MkdirTemp("", "fencelock")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.WriteFile(filepath.Join(dir, "unusualfile"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "bin"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "bin", "onlyonesuchcommand"), []byte("#!/bin/sh\n"), 0o700))
	for _, name := range []string{"nightly", "invoice:42", "reb$(touch${IFS}pwned)"} {
		holder := exec.Command("holdlock", name, filepath.Join(dir, "ready"))
		holder.Env = completionEnv(dir)
		must(t, holder.Start())
		t.Cleanup(func() {
			holder.Process.Signal(syscall.SIGTERM)
			holder.Wait()
		})
		eventually(t, name+" is held", func() bool {
			_, err := os.Stat(filepath.Join(dir, "ready"))
			return err == nil
		})
		must(t, os.Remove(filepath.Join(dir, "ready")))
	}
	t.Cleanup(func() {
		if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
			t.Error("what was typed, or the name of a lock, was run")
		}
	})
	return dir
}

func completionEnv(dir string) []string {
	return append(os.Environ(), "ENV=", "PS1=$ ", "TERM=dumb", "HOME="+dir, "FENCELOCK_URL=file://"+filepath.Join(dir, "locks"),
		"PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
}
