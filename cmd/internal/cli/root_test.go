//go:build unix

package cli

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spf13/cobra"
)

// readRun parses a command line of run.
func readRun(args ...string) (*runCmd, error) {
	c, root := new(runCmd), newRoot(new(App))
	cmd := &cobra.Command{Use: "read [flags] NAME -- CMD [ARG]...", PreRunE: Checked(c.check), Run: func(*cobra.Command, []string) {}}
	c.flags(cmd)
	root.AddCommand(cmd)
	root.SetArgs(append([]string{"read"}, args...))
	_, err := root.ExecuteC()
	return c, err
}

func TestFlagsStandBeforeAndAfterTheName(t *testing.T) {
	for _, args := range []string{
		"-n -s --ttl 9s x -- cmd -n --ttl",
		"x -n -s --ttl 9s -- cmd -n --ttl",
		"-n x --ttl=9s -s cmd -n --ttl",
		"-ns --ttl=9s -- x cmd -n --ttl",
		"-ns --ttl=9s -- x -- cmd -n --ttl",
	} {
		c, err := readRun(strings.Fields(args)...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		if !c.Nonblock || !c.Shared || c.TTL != 9*time.Second || c.Name != "x" || !slices.Equal(c.Command, []string{"cmd", "-n", "--ttl"}) {
			t.Errorf("%s: read as %+v", args, c)
		}
	}
}

func TestValuesOfFlags(t *testing.T) {
	c, err := readRun("-w1m30s", "-E", "010", "--min-hold=2s", "--note", "--", "--signal", "usr1", "--on-lost=ignore", "x", "-")
	if err != nil {
		t.Fatal(err)
	}
	if c.Wait != 90*time.Second || c.Conflict != 10 || c.MinHold != 2*time.Second || c.Note != "--" || c.signal != unix.SIGUSR1 || c.OnLost != "ignore" {
		t.Errorf("%+v", c)
	}
	if c, err = readRun("-w", "0.5", "x", "cmd"); err != nil || c.Wait != time.Second/2 || c.Conflict != exitBusy {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestRefusedCommandLines(t *testing.T) {
	for args, want := range map[string]string{
		"run":                           `the argument NAME is missing`,
		"run --":                        `the argument NAME is missing`,
		"run x":                         "run: the command is missing; write it after --",
		"run -n -w 1s x -- cmd":         "run: --nonblock and --wait cannot be used together",
		"run -w soon x -- cmd":          `--wait: "soon" is not a duration such as 30s, 1m30s or 2d`,
		"run --ttl 5x x -- cmd":         `--ttl: "5x" is not a duration such as 30s, 1m30s or 2d`,
		"run --signal 99 x -- cmd":      `run: unknown signal "99"; write a name such as TERM`,
		"run --limit 1.5 x -- cmd":      `--limit: "1.5" is not a whole number`,
		"run --limit 0 x -- cmd":        `--limit: 0 is less than 1`,
		"run --tick 0 x -- cmd":         `--tick: 0 is less than 1s`,
		"run --on-lost shrug x cmd":     `run: --on-lost: "shrug" is not one of terminate, ignore`,
		"run --json=maybe x cmd":        "--json: must be true or false",
		"--json=maybe ls":               "--json: must be true or false",
		"run -z x cmd":                  "unknown flag -z",
		"run x -z -- cmd":               "unknown flag -z",
		"run --nonblok x cmd":           `unknown flag --nonblok, did you mean "--nonblock"?`,
		"run --=x y cmd":                "bad flag syntax: --=x",
		"run --ttl":                     "flag needs an argument: --ttl",
		"--url":                         "flag needs an argument: --url",
		"--version ls":                  "--version cannot be used with a command",
		"-- ls":                         "unexpected -- before the command",
		"--json":                        "a command is missing, such as run or ls",
		"statu":                         `unexpected argument statu, did you mean "status"?`,
		"dashboard":                     `unexpected argument dashboard, did you mean "ui"?`,
		"chaos --engine redis":          "fencelock does not have chaos, fencelock-all has",
		"verify service.log":            "fencelock does not have verify, fencelock-all has",
		"help statu":                    `unexpected argument statu, did you mean "status"?`,
		"help run x":                    "unexpected argument x",
		"status x y":                    "unexpected argument y",
		"ls x y":                        "unexpected argument y",
		"version y":                     "unexpected argument y",
		"resize x many":                 `resize: "many" is not a whole number`,
		"resize x 10000000000000000000": `resize: "10000000000000000000" is too large`,
		"break x":                       `required flag(s) "reason" not set`,
		"limit x":                       `required flag(s) "rate" not set`,
		"completion":                    `the argument SHELL is missing`,
		"completion tcsh":               `SHELL: "tcsh" is not one of bash, zsh, fish, powershell`,
	} {
		var talk strings.Builder
		code := run(strings.Fields(args), nil, io.Discard, &talk)
		if got, _, _ := strings.Cut(talk.String(), "\n"); code != ExitUsage || got != "fencelock: "+want {
			t.Errorf("%s: %d, %s, want %s", args, code, got, want)
		}
	}
}

func TestURLOfTheFlagAndOfTheEnvironment(t *testing.T) {
	t.Setenv("FENCELOCK_URL", "mem:")
	for args, want := range map[string]string{
		"ls":                 "mem:",
		"--url redis://h ls": "redis://h",
		"ls --url=redis://h": "redis://h",
		"--url a ls --url b": "b",
	} {
		a := new(App)
		root := newRoot(a)
		for _, verb := range root.Commands() {
			verb.RunE = func(*cobra.Command, []string) error { return nil }
		}
		root.SetArgs(strings.Fields(args))
		if err := root.Execute(); err != nil || a.URL != want {
			t.Errorf("%s: %q, %v", args, a.URL, err)
		}
	}
}

// TestHelp: each help is printed on stdout and fits into a terminal, without the arguments that the
// verb requires.
func TestHelp(t *testing.T) {
	t.Setenv("FENCELOCK_URL", "redis://u:s3cret@h")
	root := newRoot(new(App))
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		name := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "fencelock"), " ")
		var first string
		for _, args := range []string{name + " --help", "help " + name, "--help " + name, strings.TrimPrefix(name+" x --help", " x")} {
			var out, talk strings.Builder
			if code := run(strings.Fields(args), nil, &out, &talk); code != 0 || talk.String() != "" {
				t.Errorf("%s: %d, %s", args, code, talk.String())
			}
			for row := range strings.Lines(out.String()) {
				if len(row) > helpWidth+1 {
					t.Errorf("%s: a line of %d bytes: %s", args, len(row), row)
				}
			}
			if strings.Contains(out.String(), "s3cret") || !strings.HasPrefix(out.String(), "Usage: fencelock ") {
				t.Errorf("%s: %s", args, out.String())
			}
			if first == "" {
				first = out.String()
			}
			if out.String() != first {
				t.Errorf("%s differs from %s --help", args, name)
			}
		}
	}
}
