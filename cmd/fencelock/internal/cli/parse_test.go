//go:build unix

package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/engineurl"
)

// readRun reads a command line of run.
func readRun(t *testing.T, args ...string) (*runCmd, error) {
	t.Helper()
	c := new(runCmd)
	l := line{verbs: []*verb{c.verb()}}
	return c, l.read(append([]string{"run"}, args...))
}

func TestFlagsStandBeforeAndAfterTheName(t *testing.T) {
	for _, args := range []string{
		"-n -s --ttl 9s x -- cmd -n --ttl",
		"x -n -s --ttl 9s -- cmd -n --ttl",
		"-n x --ttl=9s -s cmd -n --ttl",
		"-ns --ttl=9s -- x cmd -n --ttl",
		"-ns --ttl=9s -- x -- cmd -n --ttl",
	} {
		c, err := readRun(t, strings.Fields(args)...)
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
	c, err := readRun(t, "-w1m30s", "-E", "0", "--min-hold=2s", "--note", "--", "--signal", "usr1", "--on-lost=ignore", "x", "-")
	if err != nil {
		t.Fatal(err)
	}
	if c.Wait.limit != 90*time.Second || c.Conflict != 0 || c.MinHold != 2*time.Second || c.Note != "--" || c.Signal != "SIGUSR1" || c.OnLost != "ignore" {
		t.Errorf("%+v", c)
	}
	if c, err = readRun(t, "-w", "0.5", "x", "cmd"); err != nil || c.Wait.limit != time.Second/2 || c.Conflict != exitBusy {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestRefusedCommandLines(t *testing.T) {
	for args, want := range map[string]string{
		"run":                           `expected "<name>"`,
		"run --":                        `expected "<name>"`,
		"run x":                         "run: no command to run; write it after --",
		"run -n -w 1s x -- cmd":         "run: --nonblock and --wait can't be used together",
		"run -w soon x -- cmd":          `--wait: "soon" is not a duration such as 30s or 1m30s`,
		"run --limit 1.5 x -- cmd":      `--limit: "1.5" is not a whole number`,
		"run --on-lost shrug x cmd":     `--on-lost: "shrug" is not one of terminate, ignore`,
		"run --json=maybe x cmd":        `--json: "maybe" is neither true nor false`,
		"run -z x cmd":                  "unknown flag -z",
		"run --nonblok x cmd":           `unknown flag --nonblok, did you mean "--nonblock"?`,
		"run --ttl":                     "--ttl: a value is missing; write --ttl=DURATION",
		"--json":                        "expected a command such as run or ls",
		"statu":                         `unexpected argument statu, did you mean "status"?`,
		"status x y":                    "unexpected argument y",
		"ls x y":                        "unexpected argument y",
		"resize x many":                 `<limit>: "many" is not a whole number`,
		"resize x 10000000000000000000": `<limit>: "10000000000000000000" is too large`,
		"break x":                       "missing flags: --reason=TEXT",
		"completion":                    `expected "<shell>", one of bash, zsh, fish`,
		"completion tcsh":               `<shell>: "tcsh" is not one of bash, zsh, fish`,
	} {
		l := line{verbs: allVerbs()}
		if err := l.read(strings.Fields(args)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
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
		l := line{verbs: allVerbs()}
		if err := l.read(strings.Fields(args)); err != nil || l.url != want {
			t.Errorf("%s: %q, %v", args, l.url, err)
		}
	}
}

// Help needs nothing that the command would need.
func TestHelpAsksForNothing(t *testing.T) {
	for _, v := range allVerbs() {
		l := line{verbs: allVerbs()}
		if err := l.read([]string{v.name, "--help"}); err != nil || !l.help {
			t.Errorf("%s --help: %v", v.name, err)
		}
	}
}

func TestHelpFitsIntoATerminal(t *testing.T) {
	for _, v := range append(allVerbs(), nil) {
		l := line{verbs: allVerbs()}
		args := []string{"--help"}
		if v != nil {
			args = []string{v.name, "--help"}
		}
		var out strings.Builder
		if err := l.read(args); err != nil {
			t.Fatal(err)
		}
		if err := printHelp(&out, &l); err != nil {
			t.Fatal(err)
		}
		for row := range strings.Lines(out.String()) {
			if len(row) > helpWidth+1 {
				t.Errorf("%s: a line of %d bytes: %s", args, len(row), row)
			}
		}
	}
}

// A flag that stands in the URL is refused as one.
func TestFlagsInTheURL(t *testing.T) {
	for _, v := range allVerbs() {
		f := newFlagSet()
		if v.flags != nil {
			v.flags(f)
		}
		f.VisitAll(func(f *pflag.Flag) {
			if f.Name == "retention" { // of once; redis:// has one of its own
				return
			}
			_, _, err := engineurl.Open(t.Context(), "redis://h?"+f.Name+"=1")
			if err == nil || !strings.Contains(err.Error(), f.Name+" is a flag and no parameter of a URL") {
				t.Errorf("--%s of %s: %v", f.Name, v.name, err)
			}
		})
	}
}
