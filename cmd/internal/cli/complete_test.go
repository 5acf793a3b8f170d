//go:build unix

package cli

import (
	"io"
	"strings"
	"testing"
)

// TestComplete checks the words that __complete offers. The typed line is split at spaces, so a
// space at its end adds an empty word. The number at the end of the output is a directive of cobra:
// with :0 the shell offers files if no word matches, with :4 it does not.
func TestComplete(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"el":                        "elect :4",
		"--url mem: resiz":          "resize :4",
		"jobs pa":                   "pause :4",
		"-v --json doc":             "doctor :4",
		"--jso":                     "--json :4",
		"completion ":               "bash zsh fish powershell :4",
		"completion bash ":          ":4",
		"help doc":                  "doctor :4",
		"ls -":                      "--help -h --json --url --verbose -v --sort --watch --scan :4",
		"ls --sort ":                "name wait age :4",
		"run --on-lost ":            "terminate ignore :4",
		"run --on-lost=":            "terminate ignore :4",
		"run x --on-lost ":          "terminate ignore :4",
		"run -w ":                   "10s 1m 10m :4",
		"run -nw ":                  "10s 1m 10m :4",
		"run -w5 --noteb":           ":4",
		"run --note ":               ":4",
		"run --note --note x --kil": "--kill-after :4",
		"run x ":                    ":0",
		"run x --shar":              "--shared :4",
		"run x -n ":                 ":0",
		"run x l":                   ":0",
		"run x ls -- ":              ":0",
		"run -n x -- ls -":          ":0",
		"elect x -- ":               ":0",
		"once k -- a --ttl ":        ":0",
		"nonesuch ":                 ":4",
		"break --":                  "--reason :4", // the flag is required
		"break --reason x --":       "--help --json --url --verbose --force :4",
		"init ":                     ":4",
	} {
		var out strings.Builder
		if code := run(append([]string{"__complete"}, strings.Split(typed, " ")...), nil, &out, io.Discard); code != 0 {
			t.Errorf("%q: exit code %d", typed, code)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, word)
		}
		if all := strings.Join(got, " "); all != want {
			t.Errorf("%q: %q, want %q", typed, all, want)
		}
	}
}
