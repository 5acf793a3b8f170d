//go:build unix

package cli

import (
	"strconv"
	"strings"
	"testing"
)

// What is typed is split at spaces; nothing behind the last one is an empty word.
func TestComplete(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"el":                         "elect",
		"--url mem: resiz":           "resize",
		"jobs pa":                    "pause",
		"-v --json doc":              "doctor",
		"--jso":                      "--json",
		"completion ":                "bash zsh fish",
		"completion bash ":           "",
		"ls -":                       "--url --json --verbose -v --help -h --version --scan",
		"run --on-lost ":             "terminate ignore",
		"run --on-lost=":             "--on-lost=terminate --on-lost=ignore",
		"run --signal U":             "USR1 USR2",
		"run -w ":                    "10s 1m 10m",
		"run -nw ":                   "10s 1m 10m",
		"run -w5 --noteb":            "",
		"run --note --note x --kill": "--kill-after",
		"run --nonblock=x":           "",
		"run x ":                     "--",
		"run x --shar":               "--shared",
		"run -- -x ":                 ":command 4",
		"run x -n ":                  "--",
		"run x l":                    ":command 3",
		"run x ls -":                 ":command 3",
		"run -n x -- ls -":           ":command 5",
		"elect x -- ":                ":command 4",
		"elect --ttl 5s x -- a b c":  ":command 6",
		"nonesuch ":                  "",
		"ls --scan --url redlock:/":  "redlock://",
		"break --reas":               "--reason",
		"init ":                      "",
	} {
		found, before := complete(allVerbs(), strings.Split(typed, " "))
		var got []string
		for _, f := range found {
			got = append(got, f.word)
		}
		if before > 0 {
			got = []string{":command", strconv.Itoa(before)}
		}
		if all := strings.Join(got, " "); all != want {
			t.Errorf("%q: %q, want %q", typed, all, want)
		}
	}
}
