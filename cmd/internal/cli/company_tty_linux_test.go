package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// company is a row of the table of what shells and other programs around fencelock do. A line is typed
// into an interactive shell on a terminal of its own, keys follow, and the row says what is seen. Each
// row is tested twice: with W empty, which shows that the row is what the bare command does, and with
// W set to a verb of fencelock.
type company struct {
	name string
	in   string   // the interactive shell; "" is sh
	w    string   // the value of W; "" is "fencelock run x --"
	file string   // the content of the file f
	line string   // typed
	keys []string // alternately output to wait for and what is typed then
	seen string   // a pattern of what is seen between the line and the prompt after it
	not  string   // a pattern of what is not seen
	only bool     // the row is not tested with the bare command
}

// The programs of the table. They print numbers that they compute, so that no typed line matches.
var companyPrograms = map[string]string{
	"up":      `echo up-$((1+1)); exec sleep 60`,
	"handles": `trap 'echo handled-$((1+1)); exit 0' INT QUIT; echo up-$((1+1)); while :; do sleep 0.05; done`,
	"counts":  `n=0; trap 'n=$((n+1)); echo int-$n' INT; echo up-$((1+1)); until test -e stop; do sleep 0.05; done; echo total-$n`,
	"reads":   `echo up-$((1+1)) >&2; exec cat`,
	"next":    `echo next-$((1+1))`,
}

const (
	prompt = `code=\d+ ` // of the interactive shells; it has the exit code of the last command

	ctrlC = "\x03"
	ctrlZ = "\x1a"
	quit  = "\x1c"
)

// companyTable is the table.
var companyTable = []company{
	{name: "sh: a script ends", file: "$W ./up; ./next", line: "sh f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "bash: a script ends", file: "$W ./up; ./next", line: "bash f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "zsh: a script ends", file: "${=W} ./up; ./next", line: "zsh -f f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "sh: a loop ends", file: "for i in 1 2 3; do $W ./up; ./next; done", line: "sh f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "bash: a loop ends", file: "for i in 1 2 3; do $W ./up; ./next; done", line: "bash f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "bash: a loop that reads ends", file: "printf '1\\n2\\n' | while read i; do $W ./up </dev/tty; ./next; done", line: "bash f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "sh: a subshell and a list end", file: "($W ./up || ./next); ./next", line: "sh f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "sh: a script ends although its command handles INT", file: "$W ./handles; ./next", line: "sh f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "bash: a script goes on if its command handles INT", file: "$W ./handles; ./next", line: "bash f", keys: []string{"up-2", ctrlC}, seen: "(?s)handled-2.*next-2.*code=0"},
	{name: "sh: a trap of the script runs once", file: "trap 'echo trap-$((1+1))' INT; $W ./up; ./next", line: "sh f", keys: []string{"up-2", ctrlC}, seen: "(?s)trap-2.*next-2.*code=0", not: "(?s)trap-2.*trap-2"},
	{name: "bash: a trap of the script runs once", file: "trap 'echo trap-$((1+1))' INT; $W ./up; ./next", line: "bash f", keys: []string{"up-2", ctrlC}, seen: "(?s)trap-2.*next-2.*code=0", not: "(?s)trap-2.*trap-2"},
	{name: "two interrupts are two", file: "trap 'echo trap' INT; $W ./counts; echo script-$n", line: "bash f", keys: []string{"up-2", ctrlC, "int-1", ctrlC, "int-2", "FILE stop"}, seen: `(?s)total-2.*script-.*code=0`},
	{name: "make stops", file: "all: a b\na:\n\t@$$W ./up\nb:\n\t@./next", line: "make -k -f f", keys: []string{"up-2", ctrlC}, seen: "code=(130|2)", not: "next-2"},
	{name: "make stops although its command handles INT", file: "all: a b\na:\n\t@$$W ./handles\nb:\n\t@./next", line: "make -k -f f", keys: []string{"up-2", ctrlC}, seen: "code=(130|2)", not: "next-2"},
	{name: "make -j interrupts its other recipes", file: "all: a b\na:\n\t@$$W ./up\nb:\n\t@trap 'echo other-$$((1+1)); exit 1' INT; echo ready-$$((1+1)); while :; do sleep 0.05; done", line: "make -j2 -f f", keys: []string{"(?s)up-2.*ready-2|ready-2.*up-2", ctrlC}, seen: "(?s)other-2.*code=(130|2)"},
	{name: "xargs stops", file: "printf './up\\n./next\\n' >l; xargs -a l -n 1 ${W:-env}", line: "sh f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "xargs -o stops", file: "printf './up\\n./next\\n' | xargs -o -n 1 ${W:-env}", line: "sh f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "timeout --foreground outside", file: "timeout --foreground 50 $W ./up; ./next", line: "sh f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "timeout outside ends the command", line: "timeout 0.5 $W ./up; ./next", seen: "(?s)next-2.*code=0"},
	{name: "timeout -s INT inside does not end the script", file: "$W timeout -s INT 0.5 ./up; ./next", line: "sh f", seen: "(?s)next-2.*code=0"},
	{name: "timeout -s KILL inside", file: "$W timeout -s KILL 0.3 ./up; echo exit-$?", line: "sh f", seen: "exit-137"},
	{name: "INT to the command alone does not end the script", file: `$W sh -c 'until ps -A -o pgid=,comm= | grep -q "^ *$$ lock-terminal"; do sleep 0.05; done; kill -INT $$'; ./next`, line: "sh f", seen: "(?s)next-2.*code=0", only: true},
	{name: "a pipeline ends", file: "$W ./up | cat; ./next", line: "sh f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "a reader in a pipeline ends", file: "$W ./reads | cat; ./next", line: "sh f", keys: []string{"up-2", "a\n", "a\r\na\r\n", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "in the background", line: "$W ./up &", keys: []string{"up-2", "kill -INT $!; wait $!; echo over-$?\n", `over-\d+`, ""}, seen: "over-130"},
	{name: "sh: QUIT ends a script", file: "ulimit -c 0; $W ./up; ./next", line: "sh f", keys: []string{"up-2", quit}, seen: "code=131", not: "next-2"},
	{name: "bash: QUIT does not end a script", file: "ulimit -c 0; $W ./up; ./next", line: "bash f", keys: []string{"up-2", quit}, seen: "(?s)next-2.*code=0"},
	{name: "sh: stopped, continued and interrupted", file: "$W ./up; ./next", line: "sh f", keys: []string{"up-2", ctrlZ, `(?s)Stopped.*code=\d+ `, "fg\n", "sh f", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "bash: stopped, continued in the background and ended", in: "bash --norc --noediting -i", line: "$W ./up", keys: []string{"up-2", ctrlZ, `(?s)Stopped.*code=\d+ `, "bg; kill %1; wait %1\n"}, seen: "code=143"},
	{name: "bash: a typed loop ends", in: "bash --norc --noediting -i", line: "for i in 1 2; do $W ./up; ./next; done", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "zsh: a typed loop ends", in: "zsh -f -i -o promptsubst +Z", line: "for i in 1 2; do ${=W} ./up; ./next; done", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "sh: a script with elect ends", w: "fencelock elect x --", file: "$W ./up; ./next", line: "sh f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "elect --restart ends although its command handles INT", w: "fencelock elect --restart x --", file: "$W ./handles; ./next", line: "bash f", keys: []string{"up-2", ctrlC}, seen: "(?s)handled-2.*next-2.*code=0", not: "(?s)up-2.*up-2"},
	{name: "sh: a script with once ends", w: "fencelock once x --", file: "$W ./up; ./next", line: "sh f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "sh: a script that runs fencelock in fencelock ends", w: "fencelock run x -- fencelock run y --", file: "$W ./up; ./next", line: "sh f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
	{name: "sh: both scripts end", file: "$W sh -c '$W1 ./up; ./next'; ./next", line: "sh f", keys: []string{"up-2", ctrlC}, seen: "code=130", not: "next-2"},
}

// TestCompany tests the table.
func TestCompany(t *testing.T) {
	t.Parallel()
	for _, row := range companyTable {
		for _, bare := range []bool{true, false} {
			kind := "fencelock"
			if bare {
				kind = "bare"
			}
			if bare && row.only {
				continue
			}
			t.Run(row.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				row.test(t, bare)
			})
		}
	}
}

// test types the line and checks what is seen.
func (c company) test(t *testing.T, bare bool) {
	dir, err := os.MkdirTemp("", "fencelock")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, text := range companyPrograms {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	}
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte(c.file+"\n"), 0o600))
	words := strings.Fields(c.in)
	if len(words) == 0 {
		words = []string{"sh", "-i"}
	}
	for _, program := range []string{words[0], strings.Fields(c.line)[0]} {
		if _, err := exec.LookPath(program); err != nil && program != "for" && program != "$W" {
			t.Skipf("%s is not here; try: .ci/need shells", program)
		}
	}
	w, inner := "", ""
	if !bare {
		if w, inner = c.w, "fencelock run y --"; w == "" {
			w = "fencelock run x --"
		}
	}
	shell := exec.Command(words[0], words[1:]...)
	shell.Dir = dir
	shell.Env = append(os.Environ(), "ENV=", "PS1=code=$? ", "TERM=dumb", "HISTFILE=", "W="+w, "W1="+inner, "FENCELOCK_URL=file://"+filepath.Join(dir, "locks"))
	s := startSession(t, shell, filepath.Join(dir, "locks"))
	s.expect(prompt)
	s.enter(c.line + "\n")
	var all strings.Builder
	for i := 0; i+1 < len(c.keys); i += 2 {
		all.WriteString(s.expect(c.keys[i]))
		if name, isFile := strings.CutPrefix(c.keys[i+1], "FILE "); isFile {
			must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		} else {
			if !bare && (c.keys[i+1] == ctrlC || c.keys[i+1] == quit) {
				awaitListener(shell.Process.Pid)
			}
			s.enter(c.keys[i+1])
		}
	}
	all.WriteString(s.expect(prompt))
	text := all.String()
	if !regexp.MustCompile(c.seen).MatchString(text) || c.not != "" && regexp.MustCompile(c.not).MatchString(text) {
		t.Errorf("want %q and not %q; seen:\n%s", c.seen, c.not, text)
	}
}

// awaitListener waits until a listener is in the foreground group of the terminal: a command may have
// begun before. Where there is none, two seconds are enough.
func awaitListener(session int) {
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		stats, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, stat := range stats {
			text, _ := os.ReadFile(stat)
			_, rest, found := strings.Cut(string(text), "(lock-terminal) ")
			// state, parent, group, session, terminal, foreground group
			if f := strings.Fields(rest); found && len(f) > 5 && f[3] == strconv.Itoa(session) && f[2] == f[5] {
				return
			}
		}
	}
}
